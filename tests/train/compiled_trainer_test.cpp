// Runs of the training loop whose steps are compiled, beside the same runs that are not.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "error_of.h"
#include "support.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/models/mlp.h"
#include "ulp/prune/masks/masks.h"

namespace ulp::train {
namespace {

using test::bars;
using test::contains;
using test::error_of;
using test::run_to;
using test::small_model;
using test::weights;

TrainOptions compiled(TrainOptions options) {
  options.compile = true;
  return options;
}

/// What the steps of a run say.
std::vector<StepInfo> steps_of(const TrainOptions& options, int64_t steps,
                               const std::shared_ptr<models::ImageModel>& model = small_model()) {
  const auto data = bars();
  Trainer trainer(model, data, options);
  std::vector<StepInfo> made;
  while (trainer.next_step() < steps) made.push_back(trainer.step());
  return made;
}

TEST(CompiledTrainer, LosesWhatTheUncompiledRunLoses) {
  const std::vector<TrainOptions> runs = {
      {.batch = 16},
      {.optimizer = Optimizer::adam, .batch = 16, .clip = 0.3},
      {.optimizer = Optimizer::adamw, .batch = 16, .schedule = amp::Schedule::cosine},
      {.batch = 16, .momentum = 0, .schedule = amp::Schedule::one_cycle, .clip = 10.0},
      {.batch = 8, .accumulate = 3, .clip = 0.5},
  };
  for (const TrainOptions& plain : runs) {
    SCOPED_TRACE(plain.to_json());
    const auto expected = steps_of(plain, 16), made = steps_of(compiled(plain), 16);
    ASSERT_EQ(made.size(), expected.size());
    for (size_t i = 0; i < made.size(); ++i) {
      // Gradients of a hundred roundings each, whose differences the steps before have moved on.
      const double bound = std::ldexp(100.0 * static_cast<double>(i + 1), -24);
      EXPECT_NEAR(made[i].loss, expected[i].loss, bound) << "step " << i;
      EXPECT_EQ(made[i].learning_rate, expected[i].learning_rate);
      EXPECT_EQ(made[i].result, expected[i].result);
      ASSERT_EQ(made[i].grad_norm.has_value(), expected[i].grad_norm.has_value());
      if (made[i].grad_norm) EXPECT_NEAR(*made[i].grad_norm, *expected[i].grad_norm, bound * 4);
    }
  }
}

TEST(CompiledTrainer, ResumesWithDropoutToTheSameBitsOnOtherThreads) {
  const test::TemporaryFolder folder;
  const auto data = bars();
  const TrainOptions options = compiled({.optimizer = Optimizer::adam, .batch = 16});
  const auto net = [] {
    torch::manual_seed(5);
    return models::make_mlp(
        {.in_channels = 1, .image_size = 8, .hidden = {24}, .num_classes = 4, .dropout = 0.3});
  };
  const auto whole = net(), resumed = net();
  {
    Trainer trainer(whole, data, options);
    run_to(trainer, 9);
  }
  {
    Trainer trainer(net(), data, options);
    run_to(trainer, 5);
    trainer.save(folder / "run.ckpt");
  }
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  torch::manual_seed(99);
  Trainer trainer(resumed, data, options);
  at::set_num_threads(threads);
  trainer.resume(folder / "run.ckpt");
  run_to(trainer, 9);
  EXPECT_TRUE(torch::equal(weights(*whole), weights(*resumed)));
}

/// Observers may look at gradients and change them.
struct HalvesGradients final : StepObserver {
  void gradients(const torch::nn::Module& model, double scale) override {
    EXPECT_EQ(scale, 1.0);
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model.parameters()) {
      ASSERT_TRUE(parameter.grad().defined());
      if (in_place) {
        parameter.mutable_grad().mul_(0.5);
      } else {
        parameter.mutable_grad() = parameter.grad() * 0.5;
      }
      norm += parameter.grad().norm().item<double>();
    }
  }
  bool in_place = true;
  double norm = 0;
};

TEST(CompiledTrainer, ObserversSeeAndChangeGradients) {
  const auto data = bars();
  at::Tensor made[3];
  for (int i = 0; i < 3; ++i) {
    const auto model = small_model();
    Trainer trainer(model, data, i == 0 ? TrainOptions{.batch = 16} : compiled({.batch = 16}));
    HalvesGradients halves;
    halves.in_place = i != 2;
    trainer.observe(&halves);
    run_to(trainer, 2);
    trainer.observe(nullptr);
    run_to(trainer, 3);
    EXPECT_GT(halves.norm, 0);
    made[i] = weights(*model);
  }
  EXPECT_TRUE(torch::equal(made[1], made[2]));
  EXPECT_TRUE(torch::allclose(made[0], made[1], 1e-4, 1e-6));
}

TEST(CompiledTrainer, MasksHoldAndChange) {
  const auto data = bars();
  at::Tensor made[2];
  for (const bool compiles : {false, true}) {
    const auto graph = capture(*small_model(), {torch::randn({2, 1, 8, 8})});
    torch::manual_seed(8);
    const std::string name = "fc1.weight";
    const auto draw = [&](double share) {
      const at::Tensor keep = torch::rand(graph->graph().find_attribute(name)->tensor.sizes()) < share;
      prune::set_mask(*graph, name, keep);
      return keep;
    };
    draw(0.7);
    Task task{.model = graph,
              .forward = [graph](const TaskBatch& batch) { return graph->forward(batch.inputs); },
              .batches = image_stream(data, {.batch = 16})};
    Trainer trainer(std::move(task), compiles ? compiled({.batch = 16}) : TrainOptions{.batch = 16});
    run_to(trainer, 3);
    const at::Tensor before = graph->graph().find_attribute(name)->tensor.detach().clone();
    const at::Tensor keep = draw(0.4);
    trainer.hold_masks();
    run_to(trainer, 6);
    const at::Tensor after = graph->graph().find_attribute(name)->tensor.detach();
    EXPECT_TRUE(torch::equal(after.masked_select(~keep), before.masked_select(~keep)));
    EXPECT_FALSE(torch::equal(after.masked_select(keep), before.masked_select(keep)));
    made[compiles ? 1 : 0] = weights(*graph);
    if (!compiles) continue;
    prune::remove_masks(*graph);
    EXPECT_TRUE(contains(error_of([&] { trainer.step(); }), "compile the step again"));
  }
  EXPECT_TRUE(torch::allclose(made[0], made[1], 1e-4, 1e-6));
}

TEST(CompiledTrainer, ALossThatIsNotFiniteEndsTheRun) {
  const auto data = bars();
  const auto model = small_model();
  Trainer trainer(model, data, compiled({.batch = 16, .learning_rate = 1e30, .warmup = 0}));
  EXPECT_TRUE(contains(error_of([&] { run_to(trainer, 8); }), "expected a finite loss"));
  const at::Tensor before = weights(*model);
  EXPECT_TRUE(contains(error_of([&] { trainer.step(); }), "expected a finite loss"));
  EXPECT_TRUE(torch::equal(weights(*model).nan_to_num(), before.nan_to_num()))
      << "a failed step changes nothing";
}

TEST(CompiledTrainer, RefusesByNameBeforeItTrains) {
  const auto data = bars();
  const auto task_of = [&](const std::shared_ptr<models::ImageModel>& model) {
    return image_task(model, image_stream(data, {.batch = 16}));
  };
  const auto refusal = [&](Task task) {
    return error_of([&] { Trainer(std::move(task), compiled({.batch = 16})); });
  };
  Task other_loss = task_of(small_model());
  other_loss.loss = [](const at::Tensor& logits, const TaskBatch&) { return logits.square().mean(); };
  EXPECT_TRUE(contains(refusal(std::move(other_loss)), "expected train::cross_entropy as the loss"));
  Task other_forward = task_of(small_model());
  other_forward.forward = [forward = other_forward.forward](const TaskBatch& batch) {
    return forward(batch) * 1.01;
  };
  EXPECT_TRUE(contains(refusal(std::move(other_forward)), "forward is that of its model"));
  Task planned = task_of(small_model());
  planned.activations = [](const graph::GraphModule&) { return memory::CheckpointPlan{}; };
  EXPECT_TRUE(contains(refusal(std::move(planned)), "a plan of them"));
  const auto own = small_model();
  own->parameters()[0].register_hook([](const at::Tensor& gradient) { return gradient; });
  EXPECT_FALSE(refusal(task_of(own)).empty());
}

}  // namespace
}  // namespace ulp::train
