#include "ulp/prune/scores/score.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/rand.h>

#include <optional>
#include <utility>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/prune/scores/score_parts.h"

namespace ulp::prune {
namespace {

constexpr const char* kComputeScoresWhere = "prune.compute_scores";

Scores random_scores(const Scores& parameters, uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  Scores made;
  for (const at::Tensor& each : parameters) made.push_back(at::rand(each.sizes(), generator, at::kDouble));
  return made;
}

void check_inputs(Score score, const ScoreInputs& inputs) {
  const ScoreSource source = source_of(score);
  if (source == ScoreSource::loss && (!inputs.loss || inputs.batches < 1)) {
    fail(kComputeScoresWhere, "expected ScoreInputs::loss and at least one batch for ", enum_name(score),
         ", got ", inputs.loss ? "no batch" : "no loss");
  }
  if (source == ScoreSource::inputs && inputs.inputs.empty())
    fail(kComputeScoresWhere, "expected ScoreInputs::inputs for ", enum_name(score), ", got none");
}

/// Puts the module's buffers back: batch norms in train mode move theirs.
class KeepsBuffers {
 public:
  explicit KeepsBuffers(const graph::GraphModule& module) {
    for (const auto& [name, attribute] : module.graph().attributes()) {
      if (attribute.kind == graph::Attribute::Kind::buffer)
        kept_.emplace_back(attribute.tensor, attribute.tensor.detach().clone());
    }
  }
  ~KeepsBuffers() {
    const at::NoGradGuard no_grad;
    for (auto& [buffer, before] : kept_) buffer.copy_(before);
  }
  KeepsBuffers(const KeepsBuffers&) = delete;
  KeepsBuffers& operator=(const KeepsBuffers&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;
};

}  // namespace

ScoreSource source_of(Score score) {
  switch (score) {
    case Score::magnitude:
    case Score::random:
      return ScoreSource::weights;
    case Score::gradient:
    case Score::taylor:
    case Score::snip:
    case Score::grasp:
      return ScoreSource::loss;
    case Score::synflow:
    case Score::wanda:
    case Score::sparsegpt:
      return ScoreSource::inputs;
    case Score::movement:
    case Score::soft_movement:
      break;
  }
  return ScoreSource::training;
}

Scores parameters_of(const graph::GraphModule& module, const Names& names) {
  const auto named = module.named_parameters();
  Scores found;
  for (const std::string& name : names) {
    const at::Tensor* parameter = named.find(name);
    if (parameter == nullptr) fail(kComputeScoresWhere, "expected the name of a parameter, got '", name, "'");
    found.push_back(*parameter);
  }
  return found;
}

Scores compute_scores(Score score, graph::GraphModule& module, const Names& parameters,
                      const ScoreInputs& inputs) {
  const Scores weights = parameters_of(module, parameters);
  check_inputs(score, inputs);
  if (parameters.empty()) return {};
  std::optional<KeepsBuffers> keeps;
  if (source_of(score) != ScoreSource::weights && module.is_training()) keeps.emplace(module);
  switch (score) {
    case Score::magnitude: {
      Scores made;
      for (const at::Tensor& each : weights) made.push_back(each.detach().abs());
      return made;
    }
    case Score::random:
      return random_scores(weights, inputs.seed);
    case Score::gradient:
    case Score::taylor:
    case Score::snip:
      return gradient_scores(score, module, parameters, inputs);
    case Score::grasp:
      return grasp_scores(module, parameters, inputs);
    case Score::synflow:
      return synflow_scores(module, parameters, inputs);
    case Score::wanda:
      return wanda_scores(module, parameters, inputs);
    case Score::sparsegpt:
    case Score::movement:
    case Score::soft_movement:
      break;
  }
  fail(kComputeScoresWhere, "expected a score of a model as it is, got ", enum_name(score),
       ", which is made by ",
       score == Score::sparsegpt ? "prune_sparsegpt()" : "MovementScores, step by step");
}

}  // namespace ulp::prune
