// Masks of pruned parameters: layers read a copy with zeros where the mask has them.
#include <ATen/Functions.h>

#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

std::pair<int, int64_t> Builder::add_masked(const graph::Node& node, int parameter) {
  const graph::Argument& bits = node.arg("mask");
  const at::Tensor held = bits.is_value() ? graph_.attribute_tensor(bits.value) : at::Tensor();
  const auto found = outside_of_.find(parameter);
  if (!held.defined() || found == outside_of_.end())
    refuse(node, "expected a mask of a parameter that the graph holds, got a computed tensor");
  const at::Tensor& tensor = built_.outside[found->second].tensor;
  const PlanMatrix like = at(parameter);
  const int kept = make(like.rows, like.width);
  built_.plan.matrices.back().home = Home::outside;
  built_.plan.matrices.back().stride = like.stride;
  built_.masks.push_back({bits.value->producer->target(), held, at::zeros_like(tensor), kept});
  return {kept, static_cast<int64_t>(built_.masks.size()) - 1};
}

namespace {

void add_mask(Builder& builder, const graph::Node& node) {
  const int parameter = builder.outside(node, "weight");
  const auto [kept, mask] = builder.add_masked(node, parameter);
  const bool dense_gradient = builder.flag(node, "dense_gradient");
  builder.emit({.op = Op::mask, .out = kept, .a = parameter, .from = mask});
  builder.set_needs_gradient(kept, builder.needs_gradient(parameter));
  builder.set(*node.output(), kept);
  builder.on_backward(kept, [&builder, parameter, mask, dense_gradient](int gradient) {
    if (dense_gradient) return builder.pass_on(parameter, gradient);
    builder.contribute(parameter, false, [&](int out, bool) {
      builder.emit({.op = Op::mask, .out = out, .a = gradient, .from = mask});
    });
  });
}

}  // namespace

std::vector<OpRow> mask_rules() {
  return {{"ulp::apply_mask", add_mask}};
}

}  // namespace ulp::train::compiled
