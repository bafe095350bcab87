#include "ulp/exchange/export_tflite.h"

#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/exchange/carried_types.h"
#include "ulp/exchange/integer_sums.h"
#include "ulp/exchange/name_sizes.h"
#include "ulp/exchange/spelled/spelled.h"
#include "ulp/exchange/store_fixed.h"
#include "ulp/exchange/store_minima.h"
#include "ulp/exchange/tflite/converters.h"
#include "ulp/graph/conditions.h"
#include "ulp/graph/decompose/decompose.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/fold_masks.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::exchange {

namespace {

constexpr const char* kExportTfliteWhere = "exchange.export_tflite";

/// Writes the graph. What follows a refused call has nothing to read; only ops without a converter are still
/// named then.
void write_graph(tflite::Builder& builder, const graph::Graph& graph) {
  bool refused = false;
  const auto call = [&](const graph::Node& node) {
    const tflite::ConvertFunction function = tflite::find_converter(node);
    const bool skips = refused || builder.is_done(node);
    refused = refused || function == nullptr;
    if (function == nullptr || skips) return function != nullptr;
    try {
      expect_peer_type(node, tflite::peer_types());
      expect_moves_of(node, {at::kByte});
      function(builder, node);
    } catch (const Refused&) {
      refused = true;
      throw;
    }
    return true;
  };
  const auto result = [&](const graph::Value& value, const std::string& name) {
    if (!refused) builder.add_output(*graph.output_node(), value, name);
  };
  for (const graph::Value* input : graph.inputs()) {
    if (!input->meta) fail(kExportTfliteWhere, "expected input '", input->name, "' to have known sizes");
    try {
      builder.add_input(*input->producer, *input);
    } catch (const Refused& refused) {
      fail(kExportTfliteWhere, "input '", input->name, "': ", refused.reason);
    }
  }
  convert_graph(graph, {.where = kExportTfliteWhere,
                        .form = "TensorFlow Lite form",
                        .op_names = tflite::converter_names,
                        .call = call,
                        .result = result});
}

/// The batch, then the free dimensions.
std::vector<int64_t> sizes_of(const graph::Graph& graph, const TfliteOptions& options) {
  const BatchRange& range = graph.batch_range;
  if (options.batch != 0) {
    range.check(options.batch, kExportTfliteWhere);
  } else if (range.bounded()) {
    fail(kExportTfliteWhere, "expected a batch of one size, since a file cannot say that the model takes ",
         range.text(), ", got 0 for a free one");
  }
  std::vector<int64_t> sizes = {options.batch == 0 ? 1 : options.batch};
  size_t known = 0;
  for (const graph::DynamicDimension& free : graph.free) {
    const auto given = options.sizes.find(free.name);
    sizes.push_back(given == options.sizes.end() ? free.max : given->second);
    known += given != options.sizes.end();
  }
  if (known != options.sizes.size())
    fail(kExportTfliteWhere, "expected sizes of free dimensions of the model alone");
  return sizes;
}

}  // namespace

void TfliteOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "batch", .help = "Size of the batch (0: free)", .min = 0, .max = 1 << 20}, batch);
  visitor({.name = "integer_io", .help = "Codes of 8 bits as inputs and results of an int8 model"},
          integer_io);
}

std::string export_tflite(const graph::GraphModule& model, const TfliteOptions& options) {
  if (options.batch < 0)
    fail(kExportTfliteWhere, "expected a batch of 1 or more, or 0 for a free one, got ", options.batch);
  graph::check_conditions(model.graph(), kExportTfliteWhere);
  const std::shared_ptr<graph::Graph> graph = model.graph().clone();
  std::vector<int64_t> sizes = sizes_of(*graph, options);
  graph->fix_free({sizes.begin() + 1, sizes.end()});
  for (const auto pass :
       {graph::fold_masks, graph::canonicalize, graph::strip_training, graph::fold_batch_norm,
        graph::batch_norm_as_conv, graph::transposed_as_conv, graph::store_transposes})
    pass(*graph);
  store_minima(*graph, kExportTfliteWhere);
  store_fixed(*graph);
  // Layers and norms whose parameters were computed until now.
  for (const auto pass : {graph::fold_batch_norm, graph::batch_norm_as_conv, graph::transposed_as_conv})
    pass(*graph);
  graph->remove_dead(/*attributes=*/true);
  sizes.resize(1);
  if (options.batch != 0) {
    see_sizes(*graph, options.batch);
  } else {
    name_sizes(*graph);
    for (const graph::DynamicDimension& free : graph->free) sizes.push_back(free.min);
  }
  check_integer_sums(*graph, kExportTfliteWhere);
  graph::decompose(*graph, [](const graph::Node&) { return true; });
  const auto has_no_operator = [](const graph::Node& node) { return !node.is("aten::atan2"); };
  spelled::spell_out(*graph, has_no_operator);
  carry_types(*graph, tflite::peer_types());
  tflite::Builder builder(*graph, sizes, options.batch == 0, options.integer_io);
  write_graph(builder, *graph);
  return builder.bytes();
}

void export_tflite(const graph::GraphModule& model, const std::filesystem::path& path,
                   const TfliteOptions& options) {
  const std::string bytes = export_tflite(model, options);
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace ulp::exchange
