// Stages of a model in 2 and 3 processes against one process that accumulates over the micro-batches.
#include "ulp/distributed/pipeline.h"

#include <torch/torch.h>

#include "error_of.h"
#include "even_stages.h"
#include "in_ranks.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/distributed/stage_plan.h"
#include "ulp/graph/capture/capture.h"

namespace {

using namespace ulp;
using distributed::Pipeline;
using distributed::PipelineSchedule;
using distributed::StagePlan;
using test::even_stages;
namespace nn = torch::nn;

/// A tower with a value that goes past several layers, a batch norm and layers that share a weight.
struct TowerImpl : nn::Module {
  TowerImpl() {
    first = register_module("first", nn::Linear(6, 8));
    norm = register_module("norm", nn::BatchNorm1d(8));
    middle = register_module("middle", nn::Linear(8, 8));
    last = register_module("last", nn::Linear(8, 8));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor early = first(x);
    at::Tensor y = norm(early).relu();
    y = torch::tanh(middle(y)) * early + early.sigmoid();
    y = torch::gelu(last(y)) - early * 0.5;
    return torch::linear(y, first->weight.t());
  }
  nn::Linear first{nullptr}, middle{nullptr}, last{nullptr};
  nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Tower);

std::shared_ptr<graph::GraphModule> captured_tower() {
  torch::manual_seed(5);
  Tower tower;
  return ulp::capture(tower, {torch::randn({4, 6})});
}

struct PipelineBatch {
  at::Tensor x, y;
};
PipelineBatch pipeline_batch(int64_t samples = 8) {
  torch::manual_seed(17);
  return {torch::randn({samples, 6}), torch::randn({samples, 6})};
}

at::Tensor squared_error(const at::Tensor& output, const at::Tensor& targets) {
  return torch::mse_loss(output, targets);
}

/// One process, micro-batch after micro-batch.
double accumulate(graph::GraphModule& model, const PipelineBatch& batch, int64_t parts) {
  double mean = 0;
  const auto xs = batch.x.tensor_split(parts), ys = batch.y.tensor_split(parts);
  for (size_t i = 0; i < xs.size(); ++i) {
    const double share = static_cast<double>(batch.x.size(0)) / static_cast<double>(xs[i].size(0));
    const at::Tensor loss = squared_error(model.forward(xs[i]), ys[i]);
    mean += loss.item<double>() / share;
    (loss / share).backward();
  }
  return mean;
}

/// Gradients and buffers of the stage against those of `reference`; exact but for the names that end in `loose`.
void expect_stage(const graph::GraphModule& stage, const graph::GraphModule& reference,
                  const std::string& loose = "-") {
  const auto expected = reference.named_parameters();
  for (const auto& one : stage.named_parameters()) {
    const at::Tensor got = one.value().grad(), want = expected[one.key()].grad();
    ASSERT_TRUE(got.defined()) << one.key();
    if (one.key().ends_with(loose))
      EXPECT_TRUE(torch::allclose(got, want, 1e-5, 1e-6)) << one.key();
    else
      EXPECT_TRUE(torch::equal(got, want)) << one.key();
  }
  const auto buffers = reference.named_buffers();
  for (const auto& one : stage.named_buffers())
    EXPECT_TRUE(torch::equal(one.value(), buffers[one.key()])) << one.key();
}

void check_gradients(const std::shared_ptr<distributed::ProcessGroup>& group, int64_t samples,
                     int64_t micro_batches) {
  const PipelineBatch batch = pipeline_batch(samples);
  for (const auto schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward}) {
    const auto model = captured_tower(), reference = captured_tower();
    Pipeline pipeline(*model, even_stages(model->graph(), static_cast<size_t>(group->size())), group,
                      {.schedule = schedule, .micro_batches = micro_batches});
    for (int step = 0; step < 2; ++step) {  // the second adds to the gradients of the first
      const double expected = accumulate(*reference, batch, micro_batches);
      EXPECT_EQ(pipeline.step({batch.x}, batch.y, squared_error), expected);
    }
    // Read by the first and the last stage, whose sums are added up in another order.
    expect_stage(pipeline.module(), *reference, "first.weight");
  }
}

TEST_IN_RANKS(2, Pipeline, GradientsAreThoseOfAccumulationBitForBit) {
  check_gradients(test::rank_group(), 8, 4);
}

TEST_IN_RANKS(3, Pipeline, GradientsOfThreeStagesAreThoseOfAccumulation) {
  check_gradients(test::rank_group(), 10, 5);
}

TEST_IN_RANKS(2, Pipeline, MicroBatchesMayDifferInSize) {
  const auto group = test::rank_group();
  check_gradients(group, 11, 4);
  check_gradients(group, 3, 1);
}

TEST_IN_RANKS(2, Pipeline, TrainsUnderAutocastAndGathersTheWholeModel) {
  const auto group = test::rank_group();
  nn::Sequential net(nn::Linear(6, 16), nn::ReLU(), nn::Linear(16, 16), nn::ReLU(), nn::Linear(16, 6));
  torch::manual_seed(3);
  for (at::Tensor& parameter : net->parameters()) nn::init::uniform_(parameter, -0.3, 0.3);
  const PipelineBatch batch = pipeline_batch();
  const auto model = ulp::capture(net, {batch.x});
  const at::Tensor before = model->named_parameters()["4.weight"].detach().clone();
  const StagePlan plan = distributed::measured_stages(*group, *model, {batch.x});
  Pipeline pipeline(*model, plan, group);
  torch::optim::SGD optimizer(pipeline.own_parameters(), 1.0);
  std::vector<double> losses;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    {
      const amp::Autocast bf16(torch::kCPU, torch::kBFloat16);
      losses.push_back(pipeline.step(
          {batch.x}, batch.y,
          [](const at::Tensor& output, const at::Tensor& targets) {
            EXPECT_EQ(output.scalar_type(), at::kBFloat16);
            return torch::mse_loss(output.to(at::kFloat), targets);
          },
          /*scale=*/128));
    }
    for (const at::Tensor& parameter : pipeline.own_parameters()) parameter.mutable_grad().div_(128);
    optimizer.step();
  }
  EXPECT_LT(losses.back(), 0.9 * losses.front());
  const at::Tensor result = pipeline.forward({batch.x});
  EXPECT_EQ(result.defined(), group->rank() == 1);
  pipeline.gather(group->rank() == 0 ? model.get() : nullptr);
  at::Tensor whole = group->rank() == 0 ? model->forward(batch.x).detach() : result;
  if (group->rank() == 0) {
    EXPECT_FALSE(torch::equal(before, model->named_parameters()["4.weight"]));
  }
  const at::Tensor own = whole.clone();
  group->broadcast(whole).wait();
  EXPECT_TRUE(torch::allclose(own, whole));
}

TEST_IN_RANKS(2, Pipeline, SaysWhichProcessEnded) {
  const auto group = test::rank_group();
  const auto model = captured_tower();
  Pipeline pipeline(*model, even_stages(model->graph(), 2), group);
  const PipelineBatch batch = pipeline_batch();
  pipeline.step({batch.x}, batch.y, squared_error);
  if (group->rank() == 1) return;  // its connections close
  EXPECT_ERROR(pipeline.step({batch.x}, batch.y, squared_error), "rank 0 of 2 lost rank 1");
}

TEST_IN_RANKS(2, Pipeline, RefusesPlansAndBatchesThatDoNotFit) {
  const auto group = test::rank_group();
  const auto model = captured_tower();
  EXPECT_ERROR(Pipeline(*model, even_stages(model->graph(), 3), group),
               "expected a stage for each of 2 processes, got 3");
  StagePlan other = even_stages(model->graph(), 2);
  if (group->rank() == 1) {
    const auto calls = test::calls_of(model->graph());
    other.stages = {{calls[0], calls[0]}, {calls[1], calls.back()}};
  }
  EXPECT_ERROR(Pipeline(*model, other, group), "expected the same plan on every rank");
  Pipeline pipeline(*model, even_stages(model->graph(), 2), group);
  EXPECT_ERROR(pipeline.step({torch::randn({3, 6})}, torch::randn({3, 6}), squared_error),
               "expected at least a sample for each of 4 micro-batches, got a batch of 3");
  EXPECT_ERROR(pipeline.step({}, torch::randn({3, 6}), squared_error), "expected 1 inputs, got 0");
  EXPECT_ERROR(Pipeline(*model, {}, group, {.micro_batches = 0}), "expected micro_batches");
}

TEST(PipelinePasses, OneForwardOneBackwardHoldsAtMostAsManyMicroBatchesAsStagesFollow) {
  for (const int stages : {1, 2, 4}) {
    for (int stage = 0; stage < stages; ++stage) {
      for (const int64_t parts : {1, 3, 8}) {
        for (const auto schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_forward_one_backward}) {
          const int64_t most = distributed::micro_batches_held(schedule, stage, stages, parts);
          EXPECT_EQ(most,
                    schedule == PipelineSchedule::gpipe ? parts : std::min<int64_t>(parts, stages - stage));
          int64_t forwards = 0, backwards = 0;
          for (const auto& pass : distributed::pipeline_passes(schedule, stage, stages, parts)) {
            EXPECT_EQ(pass.micro_batch, pass.forward ? forwards++ : backwards++);
            EXPECT_LE(backwards, forwards);
            EXPECT_LE(forwards - backwards, most);
          }
          EXPECT_EQ(forwards, parts);
          EXPECT_EQ(backwards, parts);
        }
      }
    }
  }
}

}  // namespace
