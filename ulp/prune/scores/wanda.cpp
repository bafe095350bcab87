// Wanda: Sun et al. 2024, "A simple and effective pruning approach for large language models".
#include "ulp/prune/scores/layer_inputs.h"
#include "ulp/prune/scores/score_parts.h"

namespace ulp::prune {

Scores wanda_scores(const graph::GraphModule& module, const Names& names, const ScoreInputs& inputs) {
  const Scores parameters = parameters_of(module, names);
  const std::vector<InputSums> sums = layer_inputs(module, names, inputs.inputs, /*products=*/false);
  Scores made;
  for (size_t i = 0; i < names.size(); ++i) {
    const at::Tensor weight = parameters[i].detach().to(at::kDouble);
    made.push_back((weight.flatten(1).abs() * sums[i].squares.sqrt()).view(weight.sizes()));
  }
  return made;
}

}  // namespace ulp::prune
