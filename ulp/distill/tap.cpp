#include "ulp/distill/tap.h"

#include "ulp/base/error.h"
#include "ulp/distill/place.h"

namespace ulp::distill {

namespace {

using graph::Argument;

/// The first tensor in a list, a tuple or by itself; null where there is none.
const c10::IValue* first_tensor(const c10::IValue& value) {
  if (value.isTensor()) return &value;
  if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) {
      if (const c10::IValue* found = first_tensor(item)) return found;
    }
  }
  return nullptr;
}

}  // namespace

TappedModel::TappedModel(const graph::GraphModule& model, std::span<const std::string> places, Keep keep)
    : keep_(keep) {
  const std::shared_ptr<graph::Graph> graph = model.graph().clone();
  const Argument result = graph->output_node()->args.at(0);
  std::vector<Argument> taps;
  for (const std::string& place : places) taps.emplace_back(find_place(*graph, place));
  std::vector<Argument> all;
  if (keep == Keep::result) all.push_back(result);
  all.push_back(Argument::tuple(std::move(taps)));
  graph->set_output(Argument::tuple(std::move(all)));
  if (keep == Keep::taps) graph->remove_dead(/*attributes=*/true);
  module_ = std::make_shared<graph::GraphModule>(graph);
  module_->train(model.is_training());
}

at::Tensor TappedModel::Values::output() const {
  if (result.isTensorList()) {
    const auto list = result.toTensorVector();
    if (!list.empty()) return list[0];
  }
  const c10::IValue* tensor = first_tensor(result);
  if (tensor == nullptr)
    fail("distill.TappedModel", "expected a model that returns a tensor, got ", result.tagKind());
  return tensor->toTensor();
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
