#include "ulp/io/graph_file.h"

#include <c10/util/Exception.h>

#include "ulp/base/error.h"
#include "ulp/base/parse_json.h"
#include "ulp/io/graph_json.h"

namespace ulp::io {

void save_graph(const std::filesystem::path& path, const graph::GraphModule& model,
                const Metadata& metadata) {
  if (metadata.contains(kGraphKey)) fail("io.save_graph", "expected metadata without '", kGraphKey, "'");
  NamedTensors tensors;
  for (const auto& [name, attribute] : model.graph().attributes())
    tensors.emplace_back(name, attribute.tensor);
  Metadata all = metadata;
  all[kGraphKey] = graph_to_json(model.graph()).dump();
  save_tensors(path, tensors, all);
}

std::shared_ptr<graph::GraphModule> load_graph(const std::filesystem::path& path) {
  const TensorFile file = load_tensors(path);
  const auto stored = file.metadata.find(kGraphKey);
  if (stored == file.metadata.end())
    fail_file("io.load_graph", "expected a file with a graph, got '", path.string(),
              "', which holds tensors alone");
  const std::map<std::string, at::Tensor> tensors(file.tensors.begin(), file.tensors.end());
  try {
    auto model = std::make_shared<graph::GraphModule>(graph_from_json(parse_json(stored->second), tensors));
    model->eval();
    return model;
  } catch (const nlohmann::json::exception& error) {
    fail_file("io.load_graph", "in '", path.string(), "': ", error.what());
  } catch (const Error& error) {
    fail_file("io.load_graph", "in '", path.string(), "': ", error.what());
  } catch (const c10::Error& error) {
    fail_file("io.load_graph", "in '", path.string(), "': ", error.what_without_backtrace());
  }
}

}  // namespace ulp::io
