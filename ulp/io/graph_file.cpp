#include "ulp/io/graph_file.h"

#include <c10/util/Exception.h>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/io/graph_json.h"
#include "ulp/libtorch/safetensors_tensor.h"

namespace ulp::io {

namespace {

/// The module of a graph's text. `refuse` is called with what is wrong, and throws.
template <typename Refuse>
std::shared_ptr<graph::GraphModule> module_of(const std::string& text, const NamedTensors& tensors,
                                              const Refuse& refuse) {
  const std::map<std::string, at::Tensor> by_name(tensors.begin(), tensors.end());
  try {
    return std::make_shared<graph::GraphModule>(graph_from_json(parse_json(text), by_name));
  } catch (const nlohmann::json::exception& error) {
    refuse(error.what());
  } catch (const Error& error) {
    refuse(error.what());
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  }
  return nullptr;
}

}  // namespace

void save_graph(const std::filesystem::path& path, const graph::GraphModule& model,
                const Metadata& metadata) {
  constexpr const char* kWhere = "io.save_graph";
  if (metadata.contains(kGraphKey)) fail(kWhere, "expected metadata without '", kGraphKey, "'");
  NamedTensors tensors;
  for (const auto& [name, attribute] : model.graph().attributes()) {
    libtorch::check_name(kWhere, name);
    tensors.emplace_back(name, attribute.tensor);
  }
  Metadata all = metadata;
  try {
    all[kGraphKey] = graph_to_json(model.graph()).dump();
  } catch (const nlohmann::json::exception& error) {
    fail(kWhere, "expected a graph whose names and texts are UTF-8: ", error.what());
  }
  module_of(all.at(kGraphKey), tensors, [&](const char* what) {
    fail(kWhere, "expected a graph that can be read again, got one that cannot: ", what);
  });
  save_tensors(path, tensors, all);
}

std::shared_ptr<graph::GraphModule> load_graph(const std::filesystem::path& path) {
  const TensorFile file = load_tensors(path);
  const auto stored = file.metadata.find(kGraphKey);
  if (stored == file.metadata.end())
    fail_file("io.load_graph", "expected a file with a graph, got '", path.string(),
              "', which holds tensors alone");
  auto model = module_of(stored->second, file.tensors, [&](const char* what) {
    fail_file("io.load_graph", "in '", path.string(), "': ", what);
  });
  model->eval();
  return model;
}

}  // namespace ulp::io
