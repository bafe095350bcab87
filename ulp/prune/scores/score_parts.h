// The single scores behind compute_scores(). Internal.
#pragma once

#include "ulp/prune/scores/score.h"

namespace ulp::prune {

using Names = std::vector<std::string>;
using Scores = std::vector<at::Tensor>;

/// The module's parameters of these names. Throws ulp::Error for another name.
Scores parameters_of(const graph::GraphModule& module, const Names& names);

Scores gradient_scores(Score score, graph::GraphModule& module, const Names& names,
                       const ScoreInputs& inputs);
Scores grasp_scores(graph::GraphModule& module, const Names& names, const ScoreInputs& inputs);
Scores synflow_scores(const graph::GraphModule& module, const Names& names, const ScoreInputs& inputs);
Scores wanda_scores(const graph::GraphModule& module, const Names& names, const ScoreInputs& inputs);

}  // namespace ulp::prune
