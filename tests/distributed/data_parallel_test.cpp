// Gradients that are averaged while backward runs: the mean of all ranks, whatever the buckets, types and
// uses are.
#include "ulp/distributed/data_parallel.h"

#include <torch/torch.h>

#include "error_of.h"
#include "in_ranks.h"
#include "ulp/amp/optimizer/fused_step.h"

namespace {

using namespace ulp;
using distributed::DataParallel;
using distributed::DataParallelOptions;
namespace nn = torch::nn;

/// A conv net with a branch that is used on demand, and a frozen layer.
struct BranchNetImpl : nn::Module {
  BranchNetImpl() {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)));
    norm = register_module("norm", nn::BatchNorm2d(8));
    frozen = register_module("frozen", nn::Linear(8, 8));
    branch = register_module("branch", nn::Linear(8, 8));
    never = register_module("never", nn::Linear(2, 2));
    head = register_module("head", nn::Linear(8, 4));
    for (at::Tensor& parameter : frozen->parameters()) parameter.requires_grad_(false);
    conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
  }
  at::Tensor forward(const at::Tensor& x, bool with_branch = true) {
    at::Tensor y = norm(conv(x)).relu().mean({2, 3});
    y = frozen(y);
    if (with_branch) y = y + branch(y).tanh();
    return head(y);
  }
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d norm{nullptr};
  nn::Linear frozen{nullptr}, branch{nullptr}, never{nullptr}, head{nullptr};
};
TORCH_MODULE(BranchNet);

at::Tensor batch_of(int rank, int step = 0) {
  torch::manual_seed(100 + rank + 10 * step);
  return torch::randn({4, 3, 5, 5});
}

BranchNet make_net(uint64_t seed = 1) {
  torch::manual_seed(seed);
  return BranchNet();
}

/// The gradients that rank `rank` alone has.
std::vector<at::Tensor> own_gradients(BranchNet net, int rank, bool with_branch = true) {
  net->zero_grad();
  net->forward(batch_of(rank), with_branch).square().mean().backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : net->parameters())
    gradients.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
  return gradients;
}

/// Their mean over the ranks, in a copy of the net; undefined where no rank has one.
std::vector<at::Tensor> mean_gradients(int ranks, const std::function<bool(int rank)>& with_branch) {
  std::vector<at::Tensor> mean;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto own = own_gradients(make_net(), rank, with_branch(rank));
    mean.resize(own.size());
    for (size_t i = 0; i < own.size(); ++i) {
      if (!own[i].defined()) continue;
      const at::Tensor part = own[i] / ranks;
      mean[i] = mean[i].defined() ? mean[i] + part : part;
    }
  }
  return mean;
}

void expect_gradients(const BranchNet& net, const std::vector<at::Tensor>& expected, double tolerance) {
  const auto parameters = net->named_parameters();
  ASSERT_EQ(parameters.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor got = parameters[i].value().grad();
    ASSERT_EQ(got.defined(), expected[i].defined()) << parameters[i].key();
    if (!got.defined()) continue;
    EXPECT_LE((got - expected[i]).abs().max().item<double>(),
              tolerance * (1e-4 + expected[i].abs().max().item<double>()))
        << parameters[i].key();
  }
}

bool always(int) {
  return true;
}

TEST_IN_RANKS(2, DataParallel, BackwardAveragesOverTwoRanksBitForBit) {
  const auto group = test::rank_group();
  BranchNet net = make_net(/*seed=*/7 + group->rank());  // other weights: rank 0's are taken
  const BranchNet root = make_net();
  if (group->rank() == 0) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < net->parameters().size(); ++i) net->parameters()[i].copy_(root->parameters()[i]);
  }
  for (const double mib : {1e-6, 0.0005, 25.0}) {
    const DataParallel parallel(*net, group, {.bucket_mib = mib, .first_bucket_mib = mib});
    net->zero_grad();
    net->forward(batch_of(group->rank())).square().mean().backward();
    expect_gradients(net, mean_gradients(2, always), 0);
  }
}

TEST_IN_RANKS(3, DataParallel, BackwardAveragesOverThreeRanks) {
  const auto group = test::rank_group();
  BranchNet net = make_net();
  const DataParallel parallel(*net, group);
  net->forward(batch_of(group->rank())).square().mean().backward();
  expect_gradients(net, mean_gradients(3, always), 1e-6);
}

TEST_IN_RANKS(2, DataParallel, UnusedParametersCountAsZeroUnlessNobodyUsesThem) {
  const auto group = test::rank_group();
  BranchNet net = make_net();
  const DataParallel parallel(*net, group, {.bucket_mib = 1e-6, .first_bucket_mib = 1e-6});
  for (const auto& uses : {std::vector<bool>{true, false}, {false, false}, {false, true}}) {
    net->zero_grad();
    net->forward(batch_of(group->rank()), uses[group->rank()]).square().mean().backward();
    expect_gradients(net, mean_gradients(2, [&](int rank) { return uses[rank]; }), 0);
  }
}

TEST_IN_RANKS(2, DataParallel, NoSyncAddsUpUntilTheLastMicroBatch) {
  const auto group = test::rank_group();
  BranchNet net = make_net();
  DataParallel parallel(*net, group);
  {
    const auto quiet = parallel.no_sync();
    net->forward(batch_of(group->rank())).square().mean().backward();
    EXPECT_TRUE(torch::equal(net->head->bias.grad(), own_gradients(make_net(), group->rank()).back()));
  }
  // The branch is not used by the second micro-batch: its gradient of the first one must not be lost.
  net->forward(batch_of(group->rank()), /*with_branch=*/false).square().mean().backward();
  auto expected = mean_gradients(2, always);
  const auto second = mean_gradients(2, [](int) { return false; });
  for (size_t i = 0; i < expected.size(); ++i)
    if (second[i].defined()) expected[i] = expected[i] + second[i];
  expect_gradients(net, expected, 1e-5);
}

TEST_IN_RANKS(2, DataParallel, GradientsMayTravelIn16Bits) {
  const auto group = test::rank_group();
  for (const auto type : {distributed::GradientType::bf16, distributed::GradientType::fp16}) {
    BranchNet net = make_net();
    const DataParallel parallel(*net, group, {.reduce_type = type});
    net->forward(batch_of(group->rank())).square().mean().backward();
    // Two halves are rounded, and so is their sum: 3 half units in the last of 8 (bf16) or 11 bits.
    expect_gradients(net, mean_gradients(2, always), type == distributed::GradientType::bf16 ? 3e-2 : 4e-3);
    EXPECT_EQ(net->head->weight.grad().scalar_type(), at::kFloat);
  }
}

TEST_IN_RANKS(2, DataParallel, ScalersOfAllRanksComeToOneVerdict) {
  const auto group = test::rank_group();
  BranchNet net = make_net();
  const DataParallel parallel(*net, group);
  std::vector<at::Tensor> trained;
  for (const at::Tensor& parameter : net->parameters())
    if (parameter.requires_grad()) trained.push_back(parameter);
  amp::FusedOptimizer optimizer(trained, amp::SgdRule{.lr = 0.1});
  amp::GradScaler scaler({.init_scale = 4});
  for (const int bad_rank : {0, 1, -1}) {
    optimizer.zero_grad();
    at::Tensor x = batch_of(group->rank());
    if (group->rank() == bad_rank) x.mul_(std::numeric_limits<float>::infinity());
    scaler.scale(net->forward(x).square().mean()).backward();
    const auto done = amp::fused_step(optimizer, &scaler);
    EXPECT_EQ(done.result, bad_rank < 0 ? amp::StepResult::stepped : amp::StepResult::skipped_nonfinite);
    scaler.update();
    if (bad_rank >= 0) net->norm->reset_running_stats();
  }
  EXPECT_EQ(scaler.get_scale(), 1);
  const at::Tensor own = net->head->weight.detach().clone();
  group->broadcast(net->head->weight.detach()).wait();
  EXPECT_TRUE(torch::equal(own, net->head->weight));
}

TEST_IN_RANKS(2, DataParallel, TrainsAsOneProcessWithTwiceTheBatch) {
  const auto group = test::rank_group();
  const auto make = [] {
    torch::manual_seed(3);
    return nn::Sequential(nn::Linear(6, 32), nn::GELU(), nn::LayerNorm(nn::LayerNormOptions({32})),
                          nn::Linear(32, 3));
  };
  nn::Sequential net = make(), whole = make();
  const DataParallel parallel(*net, group);
  torch::optim::AdamW optimizer(net->parameters(), 0.01), reference(whole->parameters(), 0.01);
  for (int step = 0; step < 20; ++step) {
    torch::manual_seed(step);
    const at::Tensor x = torch::randn({8, 6}), y = torch::randint(3, {8});
    optimizer.zero_grad();
    torch::cross_entropy_loss(net->forward(x.narrow(0, 4 * group->rank(), 4)),
                              y.narrow(0, 4 * group->rank(), 4))
        .backward();
    optimizer.step();
    reference.zero_grad();
    torch::cross_entropy_loss(whole->forward(x), y).backward();
    reference.step();
  }
  for (size_t i = 0; i < net->parameters().size(); ++i)
    EXPECT_TRUE(torch::allclose(net->parameters()[i], whole->parameters()[i], 1e-4, 1e-5)) << i;
}

TEST_IN_RANKS(2, DataParallel, RefusesModelsThatDiffer) {
  const auto group = test::rank_group();
  nn::Linear net(4, group->rank() == 0 ? 3 : 2);
  const std::string text = test::error_of([&] { DataParallel(*net, group); });
  if (group->rank() == 0) {
    EXPECT_SAYS(text, "got another one than rank 0's on some rank");
  } else {
    EXPECT_SAYS(text, "whose list goes on with 'weight float [3, 4]");
    EXPECT_SAYS(text, "got 'weight float [2, 4]");
    EXPECT_SAYS(text, "on rank 1");
  }
}

TEST(DataParallel, RefusesOptionsAndModelsWithoutSense) {
  nn::Linear net(2, 2);
  EXPECT_ERROR(DataParallel(*net, distributed::single_process(), {.bucket_mib = 0}),
               "expected bucket_mib in (0, 1048576], got 0");
  EXPECT_ERROR(DataParallel(*net, nullptr), "expected a process group, got none");
  nn::ReLU empty;
  EXPECT_ERROR(DataParallel(*empty, distributed::single_process()),
               "expected a model with parameters to train");
}

TEST(DataParallel, OfOneProcessLeavesGradientsAsTheyAre) {
  BranchNet net = make_net();
  {
    const DataParallel parallel(*net, distributed::single_process());
    net->forward(batch_of(0)).square().mean().backward();
    expect_gradients(net, mean_gradients(1, always), 0);
  }
  net->zero_grad();  // the hooks are gone
  net->forward(batch_of(0)).square().mean().backward();
  expect_gradients(net, mean_gradients(1, always), 0);
}

}  // namespace
