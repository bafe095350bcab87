// Parameters that are whole only while their piece of the model runs: the same results, a share of the
// memory.
#include <torch/torch.h>

#include <algorithm>

#include "error_of.h"
#include "in_ranks.h"
#include "ulp/distributed/sharded_optimizer.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/measure/memory_meter.h"

namespace {

using namespace ulp;
using distributed::DataParallel;
using distributed::DataParallelOptions;
using distributed::ShardedOptimizer;
using distributed::ZeroStage;
namespace nn = torch::nn;

/// A small language model: tied embedding, residuals over several pieces, a layer norm, dropout, a frozen
/// layer.
struct TiedNetImpl : nn::Module {
  TiedNetImpl() {
    torch::manual_seed(11);
    embedding = register_module("embedding", nn::Embedding(50, 24));
    for (int i = 0; i < 3; ++i) {
      norms.push_back(register_module("norm" + std::to_string(i), nn::LayerNorm(nn::LayerNormOptions({24}))));
      up.push_back(register_module("up" + std::to_string(i), nn::Linear(24, 60)));
      down.push_back(register_module("down" + std::to_string(i), nn::Linear(60, 24)));
    }
    frozen = register_module("frozen", nn::Linear(24, 24));
    for (at::Tensor& parameter : frozen->parameters()) parameter.requires_grad_(false);
  }
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = embedding(tokens);
    for (size_t i = 0; i < up.size(); ++i)
      x = x + torch::dropout(down[i](torch::gelu(up[i](norms[i](x)))), 0.1, is_training());
    return torch::matmul(frozen(x), embedding->weight.t());
  }
  nn::Embedding embedding{nullptr};
  std::vector<nn::LayerNorm> norms;
  std::vector<nn::Linear> up, down;
  nn::Linear frozen{nullptr};
};
TORCH_MODULE(TiedNet);

at::Tensor tokens_of(int step, int rank) {
  torch::manual_seed(500 + 10 * step + rank);  // dropout's numbers follow it, too
  return torch::randint(50, {3, 7});
}

at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& tokens) {
  return torch::cross_entropy_loss(logits.flatten(0, 1), tokens.flatten());
}

constexpr int kUnitSteps = 5;

struct UnitRun {
  std::vector<double> losses;
  std::vector<at::Tensor> parameters;
};

/// Trains with a stage of ZeRO; `type` is that of the parameters.
UnitRun train_units(ZeroStage stage, at::ScalarType type,
                    const std::shared_ptr<distributed::ProcessGroup>& group, double bucket_mib,
                    int micro_batches = 1) {
  TiedNet net;
  net->to(type);
  const auto model = ulp::capture(net.ptr(), {torch::randint(50, {2, 7})});
  DataParallel parallel(*model, group, {.zero = stage, .bucket_mib = bucket_mib});
  std::vector<at::Tensor> trained;
  for (const at::Tensor& parameter : model->parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  ShardedOptimizer optimizer(parallel, {{trained, amp::AdamWRule{.lr = 0.01}, amp::MasterWeights::fp32}}, 3);
  UnitRun run;
  for (int step = 0; step < kUnitSteps; ++step) {
    optimizer.zero_grad();
    for (int part = 0; part < micro_batches; ++part) {
      const at::Tensor tokens = tokens_of(step * micro_batches + part, group->rank());
      const at::Tensor logits =
          stage == ZeroStage::parameters ? parallel.forward({tokens}) : model->forward(tokens);
      const at::Tensor loss = token_loss(logits, tokens) / micro_batches;
      loss.backward();
      run.losses.push_back(loss.item<double>());
    }
    optimizer.step(nullptr, {.max_norm = 10.0});
  }
  const DataParallel::WholeParameters whole(parallel);
  for (const at::Tensor& parameter : model->parameters())
    run.parameters.push_back(parameter.detach().clone());
  return run;
}

TEST_IN_RANKS(2, ParameterUnits, GiveTheWeightsOfSharedGradientsBitForBit) {
  const auto group = test::rank_group();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const UnitRun expected = train_units(ZeroStage::gradients, type, group, 25);
    for (const double mib : {1e-6, 0.01, 25.0}) {
      const UnitRun got = train_units(ZeroStage::parameters, type, group, mib);
      EXPECT_EQ(got.losses, expected.losses) << "units of " << mib << " MiB";
      for (size_t i = 0; i < expected.parameters.size(); ++i)
        EXPECT_TRUE(torch::allclose(got.parameters[i], expected.parameters[i], 1e-6, 1e-7))
            << "parameter " << i;
    }
  }
}

TEST_IN_RANKS(3, ParameterUnits, AccumulateOverMicroBatches) {
  const auto group = test::rank_group();
  const UnitRun expected = train_units(ZeroStage::gradients, at::kFloat, group, 25, 2);
  const UnitRun got = train_units(ZeroStage::parameters, at::kFloat, group, 0.01, 2);
  for (size_t i = 0; i < expected.parameters.size(); ++i)
    EXPECT_TRUE(torch::allclose(got.parameters[i], expected.parameters[i], 1e-4, 1e-5)) << "parameter " << i;
}

TEST_IN_RANKS(2, ParameterUnits, EvaluateWithoutGradientsAndKeepWhatIsWritten) {
  const auto group = test::rank_group();
  TiedNet net;
  net->eval();
  const at::Tensor tokens = torch::arange(21).view({3, 7});
  const at::Tensor expected = net->forward(tokens).detach().clone();
  const auto model = ulp::capture(net.ptr(), {torch::randint(50, {2, 7})});
  model->eval();
  DataParallel parallel(*model, group, {.zero = ZeroStage::parameters, .bucket_mib = 0.005});
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(torch::equal(parallel.forward({tokens}), expected));
  {
    const DataParallel::WholeParameters whole(parallel);
    EXPECT_TRUE(torch::equal(model->forward(tokens), expected));
    for (at::Tensor& parameter : model->parameters()) parameter.mul_(0);
  }
  EXPECT_EQ(parallel.forward({tokens}).abs().max().item<float>(), 0);
}

/// Bytes between backward and step over those of the formula, the most of several steps.
double share_of_the_formula(const std::shared_ptr<distributed::ProcessGroup>& group) {
  const measure::MemoryMeter meter;
  nn::Sequential net;
  for (int i = 0; i < 8; ++i) net->push_back(nn::Linear(256, 256));
  net->to(at::kBFloat16);
  int64_t parameters = 0;
  for (const at::Tensor& parameter : net->parameters()) parameters += parameter.numel();
  const at::Tensor x = torch::randn({2, 256}).to(at::kBFloat16);
  auto model = ulp::capture(net.ptr(), {x});
  net = nullptr;
  const int64_t before = meter.live_bytes() - 2 * parameters;
  DataParallel parallel(*model, group, {.zero = ZeroStage::parameters, .bucket_mib = 0.125});
  ShardedOptimizer optimizer(parallel, {{model->parameters(), amp::AdamWRule{}, amp::MasterWeights::fp32}});
  const auto expected = 16.0 * static_cast<double>(parameters) / group->size();
  double most = 0;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = parallel.forward({x}).square().mean();
    loss.backward();
    if (step > 0) most = std::max(most, static_cast<double>(meter.live_bytes() - before) / expected);
    optimizer.step(nullptr);
  }
  return most;
}

TEST_IN_RANKS(3, ParameterUnits, TakeAShareOfAllOfTheTrainingState) {
  const auto group = test::rank_group();
  // The transport's threads may give a bucket back unseen by the meter: the least of several.
  double least = share_of_the_formula(group);
  for (int i = 0; i < 9; ++i) least = std::min(least, share_of_the_formula(group));
  EXPECT_NEAR(least, 1, 0.03);
}

TEST(ParameterUnits, RefuseWhatIsNotCaptured) {
  nn::Linear net(4, 4);
  const auto group = distributed::single_process();
  EXPECT_ERROR(DataParallel(*net, group, {.zero = ZeroStage::parameters}), "expected a captured model");
  DataParallel parallel(*net, group, {.zero = ZeroStage::states});
  EXPECT_ERROR(parallel.forward({torch::ones({1, 4})}),
               "expected a stage of ZeRO that shares parameters, got zero 1");
}

}  // namespace
