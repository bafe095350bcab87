// Split layers in 2 to 4 processes against one process with whole ones.
#include "ulp/distributed/tensor_parallel.h"

#include <torch/torch.h>

#include "error_of.h"
#include "in_ranks.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/distributed/tensor_parallel_ops.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/models/text_registry.h"

namespace {

using namespace ulp;
using distributed::Split;
using distributed::TensorParallel;
using distributed::TensorParallelOptions;
namespace nn = torch::nn;
using Group = std::shared_ptr<distributed::ProcessGroup>;

/// Two blocks of an encoder with heads of their own matrices, a gate, and tokens in and out.
struct EncoderImpl : nn::Module {
  EncoderImpl(int64_t heads, double dropout) : heads(heads), dropout(dropout) {
    const int64_t width = 4 * heads;
    table = register_module("table", nn::Embedding(11, width));
    for (const char* name : {"q", "k", "v", "o"})
      layers.push_back(register_module(name, nn::Linear(width, width)));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    up = register_module("up", nn::Linear(width, 10));
    gate = register_module("gate", nn::Linear(nn::LinearOptions(width, 10).bias(false)));
    down = register_module("down", nn::Linear(10, width));
    head = register_module("head", nn::Linear(width, 11));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor x = table(tokens);
    const auto split = [&](const at::Tensor& y) {
      return y.view({y.size(0), y.size(1), heads, 4}).permute({0, 2, 1, 3});
    };
    const at::Tensor scores = split(layers[0](x)).matmul(split(layers[1](x)).transpose(-1, -2)) / 2.0;
    const at::Tensor weights = torch::dropout(scores.softmax(-1), dropout, is_training());
    const at::Tensor mixed = weights.matmul(split(layers[2](x)));
    const at::Tensor attended = norm(x + layers[3](mixed.permute({0, 2, 1, 3}).reshape_as(x)));
    return head(attended + down(torch::silu(gate(attended)) * up(attended)));
  }
  int64_t heads;
  double dropout;
  nn::Embedding table{nullptr};
  std::vector<nn::Linear> layers;
  nn::LayerNorm norm{nullptr};
  nn::Linear up{nullptr}, gate{nullptr}, down{nullptr}, head{nullptr};
};
TORCH_MODULE(Encoder);

at::Tensor some_tokens(int64_t below, int64_t length = 6) {
  torch::manual_seed(23);
  return torch::randint(below, {3, length});
}

std::shared_ptr<graph::GraphModule> captured_encoder(int64_t heads, double dropout = 0) {
  torch::manual_seed(4);
  Encoder encoder(heads, dropout);
  return ulp::capture(encoder, {some_tokens(11)});
}

at::Tensor float_token_loss(const at::Tensor& logits, const at::Tensor& tokens) {
  return torch::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), tokens.flatten());
}

void expect_close(const at::Tensor& got, const at::Tensor& want, const std::string& name) {
  ASSERT_EQ(got.sizes(), want.sizes()) << name;
  EXPECT_LE((got - want).abs().max().item<double>(), 1e-5 * (1 + want.abs().max().item<double>())) << name;
}

/// Result and gradients of the split model against the whole one's; names of split parameters count.
void expect_as_whole(const TensorParallel& parallel, graph::GraphModule& whole, const at::Tensor& tokens,
                     const Group& group) {
  const at::Tensor expected = whole.forward(tokens), got = parallel.module().forward(tokens);
  expect_close(got, expected, "result");
  float_token_loss(expected, tokens).backward();
  float_token_loss(got, tokens).backward();
  const auto gradients = whole.named_parameters();
  for (const auto& one : parallel.module().named_parameters()) {
    at::Tensor want = gradients[one.key()].grad();
    for (const auto& split : parallel.splits())
      if (split.name == one.key()) want = split.split.part_of(want, group->rank(), group->size());
    ASSERT_TRUE(one.value().grad().defined()) << one.key();
    expect_close(one.value().grad(), want, one.key());
  }
}

void check_encoder(int64_t heads) {
  const auto group = test::rank_group();
  const auto model = captured_encoder(heads), whole = captured_encoder(heads);
  graph::PassReport report;
  const TensorParallel parallel(model, group, {.least_vocabulary = 2}, &report);
  EXPECT_EQ(report.changes.size(), 4U) << ::testing::PrintToString(report.changes);
  EXPECT_EQ(parallel.splits().size(), 14U);
  EXPECT_TRUE(report.near_misses.empty()) << ::testing::PrintToString(report.near_misses);
  expect_as_whole(parallel, *whole, some_tokens(11), group);
}

TEST_IN_RANKS(2, TensorParallel, EncoderComputesAsOneProcess) {
  check_encoder(4);
}

TEST_IN_RANKS(3, TensorParallel, UnitsThatDoNotDivideAreSharedOutUnevenly) {
  check_encoder(4);
}

TEST_IN_RANKS(4, TensorParallel, EncoderComputesInFourProcesses) {
  check_encoder(4);
}

TEST_IN_RANKS(2, TensorParallel, Gpt2WithTiedVocabularyComputesAsOneProcess) {
  const auto group = test::rank_group();
  const auto make = [] {
    torch::manual_seed(8);
    return ulp::capture(*models::make_text_model("gpt2", {}), {some_tokens(256, 16)});
  };
  const auto model = make(), whole = make();
  graph::PassReport report;
  const TensorParallel parallel(model, group, {.least_vocabulary = 256}, &report);
  // Two blocks of attention and MLP, with two matrices and the bias of the first each; the table, which the head shares.
  EXPECT_EQ(parallel.splits().size(), 2U * 2 * 3 + 1) << ::testing::PrintToString(report.near_misses);
  expect_as_whole(parallel, *whole, some_tokens(256, 16), group);
}

TEST_IN_RANKS(2, TensorParallel, TrainsAndGathersWholeWeights) {
  const auto group = test::rank_group();
  const auto model = captured_encoder(4), whole = captured_encoder(4);
  const at::Tensor tokens = some_tokens(11);
  const TensorParallel parallel(model, group, {.least_vocabulary = 2, .gather_result = false});
  ASSERT_TRUE(parallel.result_split().has_value());
  torch::optim::SGD optimizer(parallel.module().parameters(), 0.5), reference(whole->parameters(), 0.5);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    reference.zero_grad();
    const at::Tensor loss = distributed::split_cross_entropy(parallel.module().forward(tokens), tokens,
                                                             *parallel.result_split(), group);
    const at::Tensor expected = float_token_loss(whole->forward(tokens), tokens);
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-5);
    loss.backward();
    expected.backward();
    optimizer.step();
    reference.step();
  }
  parallel.gather(group->rank() == 0 ? model.get() : nullptr);
  if (group->rank() == 0) {
    const auto expected = whole->named_parameters();
    for (const auto& one : model->named_parameters()) {
      EXPECT_TRUE(torch::allclose(one.value(), expected[one.key()], 1e-3, 1e-5)) << one.key();
    }
  }
  double elements = 0;
  for (const at::Tensor& parameter : parallel.own_parameters())
    elements += static_cast<double>(parameter.numel());
  double all = 0;
  for (const at::Tensor& parameter : whole->parameters()) all += static_cast<double>(parameter.numel());
  EXPECT_EQ(distributed::all_reduce(*group, elements), all);
}

TEST_IN_RANKS(2, TensorParallel, DropoutOfPartsDiffersAndTheRestStaysTheSame) {
  const auto group = test::rank_group();
  torch::manual_seed(100 + group->rank());  // rank 0's state is taken
  const auto model = captured_encoder(4, 0.5);
  const TensorParallel parallel(model, group, {.vocabulary = false});
  const at::Tensor tokens = some_tokens(11);
  parallel.module().train();
  const auto same_everywhere = [&](const at::Tensor& own) {
    const at::Tensor root = own.detach().clone();
    group->broadcast(root).wait();
    return torch::equal(root, own);
  };
  const at::Tensor first = parallel.module().forward(tokens), second = parallel.module().forward(tokens);
  EXPECT_TRUE(same_everywhere(first));
  EXPECT_TRUE(same_everywhere(second));
  EXPECT_FALSE(torch::equal(first, second));
  EXPECT_TRUE(same_everywhere(torch::rand({8})));  // the generators go on together
  const amp::Autocast bf16(torch::kCPU, torch::kBFloat16);
  EXPECT_TRUE(same_everywhere(parallel.module().forward(tokens)));
  EXPECT_EQ(parallel.module().forward(tokens).scalar_type(), at::kBFloat16);
}

TEST_IN_RANKS(2, TensorParallel, RefusesWhatCannotBeSplit) {
  const auto group = test::rank_group();
  nn::Sequential one(nn::Linear(4, 4), nn::LayerNorm(nn::LayerNormOptions({4})), nn::Linear(4, 4));
  EXPECT_ERROR(TensorParallel(ulp::capture(one, {torch::randn({2, 4})}), group),
               "expected a model with layers that can be split among 2 processes, got none; "
               "0 stays whole: no layer before it feeds it alone");
  nn::Sequential narrow(nn::Linear(4, 1), nn::ReLU(), nn::Linear(1, 4));
  EXPECT_ERROR(TensorParallel(ulp::capture(narrow, {torch::randn({2, 4})}), group),
               "it has fewer units than there are processes");
  EXPECT_ERROR(TensorParallel(captured_encoder(4), group, {.skip_modules = {"nowhere"}}),
               "expected skip_modules to name modules of the model, got 'nowhere'");
  EXPECT_ERROR(TensorParallel(nullptr, group), "expected a captured model, got null");
  graph::PassReport report;
  const TensorParallel part(captured_encoder(4), group, {.skip_modules = {"down"}}, &report);
  EXPECT_EQ(report.changes.size(), 1U);
  EXPECT_SAYS(::testing::PrintToString(report.near_misses), "down stays whole: it is skipped by name");
}

TEST_IN_RANKS(2, TensorParallel, OpsHaveTheDerivativesOfTheWhole) {
  const auto group = test::rank_group();
  torch::manual_seed(1);
  const at::Tensor whole = torch::randn({3, 6}, at::kDouble), targets = torch::tensor({2, -100, 5});
  const Split split{1, 1, 5, 1};
  EXPECT_ERROR(distributed::gather_from_ranks(whole, split, group), "of 5, got sizes [3, 6]");
  const Split all{1, 1, 6, 1};
  const auto part = [&](const at::Tensor& x) { return all.part_of(x, group->rank(), group->size()); };
  const auto gradient = [&](const std::function<at::Tensor(const at::Tensor&)>& function, at::Tensor x) {
    x = x.detach().clone().requires_grad_(true);
    function(x).backward();
    return x.grad();
  };
  const auto joined = [&](const at::Tensor& x) {
    return distributed::gather_from_ranks(x, all, group).pow(3).sum();
  };
  EXPECT_TRUE(torch::allclose(gradient(joined, part(whole)), part(3 * whole.square())));
  const auto summed = [&](const at::Tensor& x) { return distributed::sum_over_ranks(x, group).pow(2).sum(); };
  const double rank = group->rank() + 1;
  EXPECT_TRUE(torch::allclose(gradient(summed, whole * rank), 2 * whole * 3));
  const auto entered = [&](const at::Tensor& x) { return (distributed::enter_ranks(x, group) * rank).sum(); };
  EXPECT_TRUE(torch::allclose(gradient(entered, whole), torch::full_like(whole, 3)));
  const at::Tensor single = whole.to(at::kFloat);
  const auto split_loss = [&](const at::Tensor& x) {
    return distributed::split_cross_entropy(x, targets, all, group);
  };
  const auto whole_loss = [&](const at::Tensor& x) { return torch::cross_entropy_loss(x, targets); };
  EXPECT_NEAR(split_loss(part(single)).item<double>(), whole_loss(single).item<double>(), 1e-6);
  EXPECT_TRUE(
      torch::allclose(gradient(split_loss, part(single)), part(gradient(whole_loss, single)), 1e-5, 1e-7));
  EXPECT_ERROR(split_loss(part(single).narrow(0, 0, 1)), "expected int64 classes of sizes [1]");
  EXPECT_ERROR(distributed::split_cross_entropy(part(single), torch::full({3}, -100), all, group),
               "expected a target that counts");
}

TEST(Split, PartsOfHeadsMakeTheWhole) {
  const at::Tensor whole = torch::arange(2 * 3 * 5 * 4).view({2, 3 * 5 * 4});
  const Split split{1, 3, 5, 4};
  at::Tensor again = torch::zeros_like(whole);
  int64_t sizes = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const at::Tensor part = split.part_of(whole, rank, 3);
    sizes += part.size(1);
    EXPECT_EQ(part[0][0].item<int64_t>(), split.begin(rank, 3) * 4);
    split.put_part(again, part, rank, 3);
  }
  EXPECT_EQ(sizes, 60);
  EXPECT_TRUE(torch::equal(whole, again));
  const Split rows{0, 1, 3, 1};
  EXPECT_ERROR(rows.part_of(whole, 0, 2), "expected dimension 0 to have 3, got sizes [2, 60]");
}

}  // namespace
