#include "ulp/exchange/import_onnx.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/base/read_file.h"
#include "ulp/exchange/imported.h"
#include "ulp/exchange/onnx_import/given_values.h"
#include "ulp/exchange/onnx_import/inputs.h"
#include "ulp/exchange/onnx_import/own_statistics.h"
#include "ulp/exchange/onnx_import/rewrite.h"
#include "ulp/exchange/onnx_import/run.h"
#include "ulp/exchange/onnx_import/straight_sizes.h"
#include "ulp/graph/graph_module.h"
#include "ulp/libtorch/shape_propagation.h"
#include "ulp/quant/static/quantized_average.h"

namespace ulp::exchange {

namespace {

using onnx_import::FileModel;
using onnx_import::Inputs;
using onnx_import::Run;
using onnx_import::Store;

using onnx_import::kImportOnnxWhere;
constexpr int64_t kFirstImportOpset = 6, kLastImportOpset = 28;
constexpr size_t kMostNodes = 10'000;

/// All of a file, which is below 2 GB by its format: larger models have external data.
std::string read_bytes(const std::filesystem::path& path) {
  return read_file(kImportOnnxWhere, path, std::numeric_limits<int32_t>::max());
}

/// Nodes of a graph and of those inside it, constants apart.
size_t count_nodes(const onnx_import::FileGraph& graph) {
  size_t count = 0;
  for (const onnx_import::FileNode& node : graph.nodes) {
    count += node.op == "Constant" ? 0 : 1;
    for (const onnx_import::FileAttribute& attribute : node.attributes) {
      if (attribute.g) count += count_nodes(*attribute.g);
    }
  }
  return count;
}

FileModel checked_model(std::string_view bytes, const std::filesystem::path& name) {
  FileModel model = onnx_import::read_model(bytes, name);
  const auto opset = model.opsets.find("");
  if (opset == model.opsets.end() || opset->second < kFirstImportOpset || opset->second > kLastImportOpset)
    fail_file(kImportOnnxWhere, "expected the standard operators of version ", kFirstImportOpset, " to ",
              kLastImportOpset, ", got ",
              opset == model.opsets.end() ? "none" : std::to_string(opset->second));
  if (const size_t nodes = count_nodes(model.graph); nodes > kMostNodes)
    fail_file(kImportOnnxWhere, "expected at most ", kMostNodes,
              " nodes, since the time to capture them grows with their square, got ", nodes);
  if (model.graph.outputs.empty()) fail_file(kImportOnnxWhere, "expected a graph with results, got none");
  return model;
}

/// The model in the operators that are known.
FileModel readable_model(std::string_view bytes, const std::filesystem::path& name,
                         const OnnxImportOptions& options) {
  FileModel model = checked_model(bytes, name);
  onnx_import::give_values(model, options.values);
  onnx_import::name_inner_values(model.graph);
  onnx_import::own_statistics(model.graph);
  onnx_import::rewrite_code_operators(model.graph);
  onnx_import::rewrite_dynamic_products(model.graph);
  onnx_import::fold_constants(model, options);
  onnx_import::own_statistics(model.graph);
  return model;
}

/// One result as it is; several under their names.
c10::IValue packed(const FileModel& model, const std::vector<at::Tensor>& results) {
  if (results.size() == 1) return results[0];
  std::vector<std::pair<std::string, c10::IValue>> named;
  for (size_t i = 0; i < results.size(); ++i) named.emplace_back(model.graph.outputs[i].name, results[i]);
  return graph::pack_names(named);
}

/// The value keeps the name that the file has for it, where a name is short and plain.
void name_value(graph::Graph& graph, graph::Value& value, const std::string& name) {
  constexpr size_t kLongest = 200;
  const bool plain = !name.empty() && name.size() <= kLongest &&
                     std::ranges::all_of(name, [](unsigned char c) { return std::isgraph(c) != 0; });
  const bool computed = value.producer->kind() == graph::Node::Kind::call;
  if (plain && computed && value.name != name) value.name = graph.unique_name(name);
}

/// Results are called as in the file: one by itself, several as packed() has them.
void name_results(graph::Graph& graph, const FileModel& model) {
  using Kind = graph::Argument::Kind;
  const graph::Argument& result = graph.output_node()->args.at(0);
  if (result.kind == Kind::value) return name_value(graph, *result.value, model.graph.outputs.at(0).name);
  for (const graph::Argument& pair : result.items) {
    if (pair.items.size() == 2 && pair.items[1].kind == Kind::value && pair.items[0].literal.isString())
      name_value(graph, *pair.items[1].value, pair.items[0].literal.toStringRef());
  }
}

/// Runs the graph twice, before capture: each result is measured before it is computed, and the second run, at other sizes,
/// tells which numbers follow sizes; these must do so by a polynomial. Where there are branches, a third one at the smallest
/// sizes tells which are taken at some sizes alone.
void learn(Store& store, const Inputs& inputs) {
  const at::NoGradGuard no_grad;
  Run first(store, /*training=*/false, /*dry=*/true);
  first.forward(inputs.examples);
  Run second(store, /*training=*/false, /*dry=*/true);
  second.forward(onnx_import::at_other_sizes(inputs));
  const std::map<std::string, std::vector<at::Tensor>> one = first.sized_values(),
                                                       other = second.sized_values();
  const auto are_equal = [](const at::Tensor& a, const at::Tensor& b) {
    return a.scalar_type() == b.scalar_type() && at::equal(a, b);
  };
  for (const auto& [name, values] : one) {
    const auto found = other.find(name);
    if (found != other.end() && std::ranges::equal(values, found->second, are_equal))
      store.fixed.insert(name);
  }
  onnx_import::check_straight_sizes(store, inputs, first);
  if (store.choices.empty() || !store.has_free_sizes) return;
  try {
    Run smallest(store, /*training=*/false, /*dry=*/true);
    smallest.forward(onnx_import::at_smallest_sizes(inputs));
  } catch (const Error&) {
    // The network cannot take so little; what it has chosen before counts.
  }
}

std::shared_ptr<graph::GraphModule> captured(const FileModel& model, const Inputs& inputs,
                                             const OnnxImportOptions& options) {
  Store store(model, options);
  store.has_free_sizes = !inputs.options.free.empty();
  learn(store, inputs);
  const auto run = [&](const std::vector<at::Tensor>& given, bool training) {
    return packed(model, Run(store, training, /*dry=*/false).forward(given));
  };
  std::shared_ptr<graph::GraphModule> module =
      captured_run(store.attributes(), run, inputs.examples, inputs.options);
  quant::average_on_codes(module->graph());
  name_results(module->graph(), model);
  module->recompile();
  return module;
}

std::shared_ptr<graph::GraphModule> captured(const FileModel& model, const OnnxImportOptions& options) {
  const Inputs inputs = onnx_import::read_inputs(model, options);
  std::shared_ptr<graph::GraphModule> module;
  libtorch::with_shapes([&] { module = captured(model, inputs, options); });
  if (options.on_fixed_size) std::ranges::for_each(inputs.fixed, options.on_fixed_size);
  return module;
}

/// With a free batch where that can be.
std::shared_ptr<graph::GraphModule> imported(const FileModel& model, const OnnxImportOptions& options) {
  OnnxImportOptions as_it_says = options;
  as_it_says.free_batch = false;
  if (!options.free_batch || onnx_import::has_batch(model)) return captured(model, as_it_says);
  try {
    return captured(model, options);
  } catch (const Error&) {
    return captured(model, as_it_says);
  }
}

}  // namespace

std::shared_ptr<graph::GraphModule> import_onnx(std::string_view bytes, const std::filesystem::path& name,
                                                const OnnxImportOptions& options) {
  return naming_file(kImportOnnxWhere, name,
                     [&] { return imported(readable_model(bytes, name, options), options); });
}

std::shared_ptr<graph::GraphModule> import_onnx(const std::filesystem::path& path,
                                                const OnnxImportOptions& options) {
  return import_onnx(read_bytes(path), path, options);
}

std::map<std::string, std::string> onnx_metadata(const std::filesystem::path& path) {
  return naming_file(kImportOnnxWhere, path, [&] { return checked_model(read_bytes(path), path).metadata; });
}

}  // namespace ulp::exchange
