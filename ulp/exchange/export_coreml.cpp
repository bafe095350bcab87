#include "ulp/exchange/export_coreml.h"

#include "ulp/base/error.h"
#include "ulp/exchange/calls.h"
#include "ulp/exchange/carried_types.h"
#include "ulp/exchange/coreml/converters.h"
#include "ulp/exchange/coreml/package.h"
#include "ulp/exchange/fix_sizes.h"
#include "ulp/exchange/half.h"
#include "ulp/exchange/spelled/spelled.h"
#include "ulp/exchange/store_minima.h"
#include "ulp/graph/conditions.h"
#include "ulp/graph/decompose/decompose.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/fold_masks.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/version.h"

namespace ulp::exchange {

namespace {

using coreml::kExportCoremlWhere;

std::shared_ptr<graph::Graph> prepared(const graph::GraphModule& module, const CoreMlOptions& options) {
  if (options.batch < 1) fail(kExportCoremlWhere, "expected a batch of 1 or more, got ", options.batch);
  graph::check_conditions(module.graph(), kExportCoremlWhere);
  const std::shared_ptr<graph::Graph> graph = module.graph().clone();
  for (const auto pass :
       {graph::fold_masks, graph::canonicalize, graph::strip_training, graph::fold_batch_norm})
    pass(*graph);
  store_minima(*graph, kExportCoremlWhere);
  graph->remove_dead(/*attributes=*/true);
  fix_sizes(*graph, options.batch, options.sizes, kExportCoremlWhere);
  const auto has_no_form = [](const graph::Node& node) { return !coreml::has_form(node); };
  graph::decompose(*graph, has_no_form);
  spelled::split_extremes(*graph);
  if (options.fp16) to_half(*graph, kExportCoremlWhere);
  spelled::spell_out(*graph, has_no_form);
  carry_types(*graph, coreml::peer_types());
  return graph;
}

coreml::Model built(const graph::Graph& graph, const CoreMlOptions& options) {
  coreml::Builder builder(graph, options.int8_weights);
  for (const graph::Value* input : graph.inputs()) builder.add_input(*input);
  const auto call = [&](const graph::Node& node) {
    const coreml::ConvertFunction function = coreml::find_converter(node);
    if (function == nullptr) return false;
    expect_moves_of(node, {at::kByte, at::kChar, at::kShort});
    function(builder, node);
    return true;
  };
  const auto result = [&](const graph::Value& value, const std::string& name) {
    builder.add_output(value, name);
  };
  convert_graph(graph, {.where = kExportCoremlWhere,
                        .form = "Core ML form",
                        .op_names = coreml::converter_names,
                        .call = call,
                        .result = result});
  coreml::Model model = std::move(builder.model());
  model.description = "Written by ulp";
  model.version = kVersion;
  model.metadata = options.metadata;
  return model;
}

}  // namespace

void export_coreml(const graph::GraphModule& model, const std::filesystem::path& path,
                   const CoreMlOptions& options) {
  coreml::check_target(path);
  coreml::write_package(built(*prepared(model, options), options), path);
}

}  // namespace ulp::exchange
