#include "ulp/app/train/prunes_while_training.h"

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "ulp/base/error.h"
#include "ulp/prune/masks/masks.h"

namespace ulp::app {

namespace {

constexpr int64_t kGrowthSteps = 10;  // between updates, as Wang et al. 2021

/// The tensor of that name in a checkpoint's state.
const at::Tensor& find(const io::NamedTensors& state, const std::string& name) {
  const auto found = std::ranges::find(state, name, [](const auto& one) { return one.first; });
  if (found == state.end())
    fail_file("app.PrunesWhileTraining", "expected '", name, "' in the checkpoint, got none");
  return found->second;
}

}  // namespace

PrunesWhileTraining::PrunesWhileTraining(prune::Pruner& pruner, train::Trainer& trainer,
                                         graph::GraphModule* form)
    : pruner_(pruner), trainer_(trainer), form_(form) {
  const int64_t last = pruner.recipe().schedule.last();
  if (last >= trainer.total_steps())
    fail("app.PrunesWhileTraining", "expected a schedule within the ", trainer.total_steps(),
         " steps of training, got one that goes on to step ", last);
}

void PrunesWhileTraining::begin(int64_t step, double) {
  if (!pruner_.step(step)) return;
  if (form_ != nullptr) prune::share_masks(*form_, pruner_.module());
  trainer_.hold_masks();
}

void PrunesWhileTraining::gradients(const torch::nn::Module&, double scale) {
  pruner_.after_backward(scale);
}

io::NamedTensors PrunesWhileTraining::state() const {
  io::NamedTensors state;
  if (pruner_.movement() == nullptr) return state;
  const std::vector<at::Tensor>& scores = pruner_.movement()->scores();
  for (size_t i = 0; i < scores.size(); ++i) state.emplace_back(pruner_.parameters()[i], scores[i]);
  return state;
}

void PrunesWhileTraining::restore(const io::NamedTensors& state) {
  if (pruner_.movement() == nullptr) return;
  std::vector<at::Tensor> scores;
  for (const std::string& name : pruner_.parameters()) scores.push_back(find(state, name));
  pruner_.movement()->set_scores(scores);
}

PenalizesWhileTraining::PenalizesWhileTraining(std::shared_ptr<graph::GraphModule> model,
                                               prune::Groups groups, const prune::RegularizeOptions& options,
                                               const train::Trainer& trainer)
    : regularizer_(std::move(model), std::move(groups), options),
      every_(options.penalty == prune::Penalty::growing ? kGrowthSteps : trainer.steps_per_epoch()) {}

void PenalizesWhileTraining::begin(int64_t step, double) {
  if (step > 0 && step % every_ == 0) regularizer_.update();
}

void PenalizesWhileTraining::gradients(const torch::nn::Module&, double scale) {
  regularizer_.add_to_gradients(scale);
}

io::NamedTensors PenalizesWhileTraining::state() const {
  io::NamedTensors state;
  for (const std::vector<double>& group : regularizer_.strengths())
    state.emplace_back("strengths." + std::to_string(state.size()), at::tensor(group, at::kDouble));
  return state;
}

void PenalizesWhileTraining::restore(const io::NamedTensors& state) {
  prune::Importance strengths;
  for (size_t g = 0; g < regularizer_.strengths().size(); ++g) {
    const at::Tensor one = find(state, "strengths." + std::to_string(g)).to(at::kDouble).contiguous();
    strengths.emplace_back(one.const_data_ptr<double>(), one.const_data_ptr<double>() + one.numel());
  }
  regularizer_.set_strengths(std::move(strengths));
}

}  // namespace ulp::app
