#include "ulp/distill/tap.h"

#include "ulp/base/error.h"
#include "ulp/distill/layer_reference.h"
#include "ulp/graph/capture/tensors.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::distill {

TappedModel::TappedModel(const graph::GraphModule& model, std::span<const std::string> places, Keep keep)
    : keep_(keep) {
  const std::shared_ptr<graph::Graph> graph = model.graph().clone();
  const graph::Argument result = graph->output_node()->args.at(0);
  std::vector<graph::Argument> taps;
  for (const std::string& place : places) taps.emplace_back(find_layer_output(*graph, place));
  std::vector<graph::Argument> all;
  if (keep == Keep::result) all.push_back(result);
  all.push_back(graph::Argument::tuple(std::move(taps)));
  graph->set_output(graph::Argument::tuple(std::move(all)));
  if (keep == Keep::taps) {
    graph::strip_training(*graph);  // updates of statistics would hold layers that nobody needs
    graph->remove_dead(/*attributes=*/true);
  }
  module_ = std::make_shared<graph::GraphModule>(graph);
  module_->train(model.is_training());
}

at::Tensor TappedModel::Values::output() const {
  const std::vector<at::Tensor> tensors = graph::packed_tensors(result);
  if (tensors.empty())
    fail("distill.TappedModel", "expected a model that returns a tensor, got ", result.tagKind());
  return tensors[0];
}

TappedModel::Values TappedModel::run(const std::vector<at::Tensor>& inputs) const {
  const c10::IValue all = module_->run(inputs);
  const auto& items = all.toTupleRef().elements();
  Values values;
  if (keep_ == Keep::result) values.result = items[0];
  for (const c10::IValue& tap : items.back().toTupleRef().elements()) values.taps.push_back(tap.toTensor());
  return values;
}

}  // namespace ulp::distill
