// A recipe that rotates the residual stream before weights are stored small. Internal.
#pragma once

#include <memory>

#include "ulp/graph/graph_module.h"
#include "ulp/quant/methods/rotate_residual.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::quant {

/// Calls `quantize` with the rotated model and the rest of the recipe, and puts what was rotated before what
/// it reports.
template <typename Quantize>
auto with_rotation(const std::shared_ptr<graph::GraphModule>& captured, const WeightOnlyRecipe& recipe,
                   graph::PassReport* report, Quantize&& quantize) {
  graph::PassReport rotation, rest;
  WeightOnlyRecipe plain = recipe;
  plain.rotate = false;
  auto result = quantize(rotate_residual(captured, &rotation), plain, &rest);
  rest.changes.insert(rest.changes.begin(), rotation.changes.begin(), rotation.changes.end());
  if (report != nullptr) *report = std::move(rest);
  return result;
}

}  // namespace ulp::quant
