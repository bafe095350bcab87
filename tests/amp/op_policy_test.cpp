#include "ulp/amp/autocast/op_policy.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>
#include <thread>

#include "constants.h"
#include "error_of.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace {

using ulp::amp::Autocast;
using ulp::amp::Cast;
using ulp::amp::OpPolicy;
using ulp::test::error_of;

std::set<std::string> names(const OpPolicy& policy) {
  std::set<std::string> result;
  for (const auto& [op, cast] : policy.rules()) result.insert(op);
  return result;
}

std::set<std::string> registered(c10::DispatchKey key) {
  std::set<std::string> result;
  for (const auto& name : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(key)) {
    if (name.name.starts_with("aten::")) {
      result.insert(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
    }
  }
  return result;
}

// The lists name exactly the ops that LibTorch casts; what it makes of each is checked in op_table_test.cpp.
TEST(OpPolicy, TheBuiltInListsNameWhatLibTorchRegisters) {
  EXPECT_EQ(names(OpPolicy::libtorch_cpu()), registered(c10::DispatchKey::AutocastCPU));
  EXPECT_EQ(names(OpPolicy::cuda_like()), registered(c10::DispatchKey::AutocastCUDA));
}

TEST(OpPolicy, ReadsAsData) {
  const OpPolicy& cuda = OpPolicy::cuda_like();
  EXPECT_EQ(cuda.find("aten::softmax.int"), Cast::fp32_set_opt_dtype);
  EXPECT_EQ(cuda.find("aten::layer_norm"), Cast::fp32);
  EXPECT_EQ(cuda.find("aten::norm.Scalar"), Cast::fp32);
  EXPECT_EQ(cuda.find("aten::mv"), Cast::lower_precision);
  EXPECT_EQ(cuda.find("aten::addcmul"), Cast::widest);
  EXPECT_EQ(cuda.find("aten::binary_cross_entropy"), Cast::refuse);
  EXPECT_EQ(cuda.find("aten::relu"), Cast::leave);
  EXPECT_EQ(cuda.find("no such op"), Cast::leave);
  EXPECT_EQ(OpPolicy::libtorch_cpu().find("aten::softmax.int"), Cast::leave);
}

TEST(OpPolicy, IsAValueThatCanBeExtended) {
  OpPolicy mine = OpPolicy::cuda_like();
  EXPECT_EQ(mine, OpPolicy::cuda_like());
  mine.set("aten::softmax.int", Cast::lower_precision).set("aten::linear", Cast::leave);
  EXPECT_NE(mine, OpPolicy::cuda_like());
  EXPECT_EQ(mine.find("aten::softmax.int"), Cast::lower_precision);
  EXPECT_FALSE(mine.rules().contains("aten::linear"));
  EXPECT_EQ(OpPolicy::cuda_like().find("aten::linear"), Cast::lower_precision);
}

TEST(OpPolicy, ANameWithoutOverloadMeansAllThatAreNeitherInPlaceNorOut) {
  const OpPolicy policy = OpPolicy().set("aten::pow", Cast::fp32);
  EXPECT_EQ(names(policy), (std::set<std::string>{"aten::pow.Scalar", "aten::pow.Tensor_Scalar",
                                                  "aten::pow.Tensor_Tensor"}));
  EXPECT_EQ(names(OpPolicy().set("aten::sum.default", Cast::fp32)), std::set<std::string>{"aten::sum"});
}

TEST(OpPolicy, RefusesWhatHasNoPlaceInAPolicy) {
  OpPolicy policy;
  EXPECT_EQ(error_of([&] { policy.set("aten::sotfmax", Cast::fp32); }),
            "[amp.OpPolicy.set] expected an operator known to the dispatcher, got 'aten::sotfmax'");
  EXPECT_EQ(error_of([&] { policy.set("aten::softmax.nix", Cast::fp32); }),
            "[amp.OpPolicy.set] expected an operator known to the dispatcher, got 'aten::softmax.nix'");
  const std::string mutating = "[amp.OpPolicy.set] expected an op that is neither in-place nor out=, got '";
  EXPECT_EQ(error_of([&] { policy.set("aten::exp_", Cast::fp32); }),
            mutating + "aten::exp_': those are left alone");
  EXPECT_EQ(error_of([&] { policy.set("aten::exp.out", Cast::fp32); }),
            mutating + "aten::exp.out': those are left alone");
  EXPECT_EQ(
      error_of([&] { policy.set("aten::exp", Cast::fp32_set_opt_dtype); }),
      "[amp.OpPolicy.set] expected an op with an optional dtype for fp32_set_opt_dtype, got 'aten::exp'");
  EXPECT_EQ(policy, OpPolicy());
}

TEST(OpPolicy, DecidesWhatRunsInWhichPrecision) {
  const auto x = torch::rand({4, 4}), low = x.to(kBF16);
  const Autocast guard(torch::kCPU, kBF16, OpPolicy::cuda_like());
  EXPECT_EQ(torch::mm(x, x).scalar_type(), kBF16);
  EXPECT_EQ(torch::mv(x, x[0]).scalar_type(), kBF16);
  EXPECT_EQ(torch::exp(low).scalar_type(), kFloat);
  EXPECT_EQ(torch::softmax(low, 1).scalar_type(), kFloat);
  EXPECT_EQ(torch::softmax(low, 1, kBF16).scalar_type(), kBF16);  // the caller's own dtype counts
  EXPECT_EQ(torch::layer_norm(low, {4}).scalar_type(), kFloat);
  EXPECT_EQ(low.sum().scalar_type(), kFloat);
  EXPECT_EQ(low.norm().scalar_type(), kFloat);
  EXPECT_EQ(torch::addcmul(low, low, x).scalar_type(), kFloat);
  EXPECT_EQ(torch::addcmul(low, low, low).scalar_type(), kBF16);
  EXPECT_EQ(torch::addcmul(low, low, low.to(torch::kHalf)).scalar_type(), kFloat);
  EXPECT_EQ(torch::relu(low).scalar_type(), kBF16);  // not listed
  EXPECT_EQ(torch::index_put(x, {torch::tensor({0})}, low[0]).scalar_type(), kFloat);
}

TEST(OpPolicy, TensorsInListsAreCastToo) {
  const Autocast guard(torch::kCPU, kBF16, OpPolicy().set("aten::cat", Cast::lower_precision));
  EXPECT_EQ(torch::cat({torch::ones(2), torch::ones(2, torch::kHalf)}).scalar_type(), kBF16);
}

TEST(OpPolicy, ValuesAreThoseOfTheCastInputs) {
  const auto x = torch::rand({4, 4}), w = torch::rand({4, 4}), low = x.to(kBF16);
  const auto product = torch::mm(x.to(kBF16), w.to(kBF16)), exponential = torch::exp(low.to(kFloat));
  const Autocast guard(torch::kCPU, kBF16, OpPolicy::cuda_like());
  EXPECT_TRUE(torch::equal(torch::mm(x, w), product));
  EXPECT_TRUE(torch::equal(torch::exp(low), exponential));
}

TEST(OpPolicy, InPlaceOutFp64AndIntegersAreLeftAlone) {
  const Autocast guard(torch::kCPU, kBF16, OpPolicy::cuda_like());
  auto low = torch::rand({4, 4}).to(kBF16);
  const auto x = torch::rand({4, 4});
  EXPECT_EQ(low.exp_().scalar_type(), kBF16);
  auto out = torch::empty({4, 4}, kBF16);
  EXPECT_EQ(torch::exp_out(out, low).scalar_type(), kBF16);
  auto product = torch::empty({4, 4});
  EXPECT_EQ(torch::mm_out(product, x, x).scalar_type(), kFloat);
  auto sum = torch::rand({4, 4});
  EXPECT_EQ(sum.addmm_(x, x).scalar_type(), kFloat);
  EXPECT_EQ(torch::mm(x.to(torch::kDouble), x.to(torch::kDouble)).scalar_type(), torch::kDouble);
  EXPECT_EQ(torch::exp(x.to(torch::kDouble)).scalar_type(), torch::kDouble);
  EXPECT_EQ(torch::mm(torch::ones({2, 2}, torch::kLong), torch::ones({2, 2}, torch::kLong)).scalar_type(),
            torch::kLong);
  EXPECT_EQ(torch::ones(3, torch::kLong).sum().scalar_type(), torch::kLong);
}

TEST(OpPolicy, NestsWithOtherGuardsAndOptsOut) {
  const auto x = torch::rand({4, 4});
  const auto softmax = [&] { return torch::softmax(x.to(kBF16), 1).scalar_type(); };
  const auto product = [&] { return torch::mm(x, x).scalar_type(); };
  const Autocast outer(torch::kCPU, kBF16, OpPolicy::cuda_like());
  {
    const Autocast other(torch::kCPU, torch::kHalf, OpPolicy().set("aten::mm", Cast::lower_precision));
    EXPECT_EQ(softmax(), kBF16);
    EXPECT_EQ(product(), torch::kHalf);
    {
      const Autocast libtorch(torch::kCPU, kBF16);
      EXPECT_EQ(softmax(), kBF16);
      EXPECT_EQ(product(), kBF16);
    }
    {
      const Autocast off(torch::kCPU, kBF16, false);
      EXPECT_EQ(product(), kFloat);
    }
    EXPECT_EQ(product(), torch::kHalf);
  }
  EXPECT_EQ(softmax(), kFloat);
  EXPECT_EQ(product(), kBF16);
}

TEST(OpPolicy, EndsWithItsScopeAlsoByAnException) {
  const auto x = torch::rand({4, 4});
  EXPECT_THROW(
      {
        const Autocast guard(torch::kCPU, kBF16, OpPolicy::cuda_like());
        torch::mm(x, torch::ones({3, 3}));
      },
      c10::Error);
  EXPECT_EQ(torch::mm(x, x).scalar_type(), kFloat);
  EXPECT_EQ(torch::exp(x.to(kBF16)).scalar_type(), kBF16);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kPrivateUse1));
  EXPECT_FALSE(c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::AutocastPrivateUse1));
}

TEST(OpPolicy, IsTheThreadsOwn) {
  const auto x = torch::rand({4, 4});
  const Autocast guard(torch::kCPU, kBF16, OpPolicy::cuda_like());
  std::vector<at::ScalarType> seen;
  std::thread([&] {
    seen.push_back(torch::mm(x, x).scalar_type());
    const Autocast own(torch::kCPU, torch::kHalf, OpPolicy::cuda_like());
    seen.push_back(torch::mm(x, x).scalar_type());
  }).join();
  EXPECT_EQ(seen, (std::vector<at::ScalarType>{kFloat, torch::kHalf}));
  EXPECT_EQ(torch::mm(x, x).scalar_type(), kBF16);
}

TEST(OpPolicy, APolicyForAnotherDeviceLeavesThisOneAlone) {
  const auto x = torch::rand({4, 4});
  const Autocast guard(torch::kCUDA, torch::kHalf, OpPolicy::cuda_like());
  EXPECT_EQ(torch::mm(x, x).scalar_type(), kFloat);
  const Autocast cpu(torch::kCPU, kBF16);
  EXPECT_EQ(torch::mm(x, x).scalar_type(), kBF16);
}

TEST(OpPolicy, WhatACompositeOpCallsIsLookedAt) {
  // cross_entropy_loss is on no CUDA list; the log_softmax and nll_loss inside are.
  const auto logits = torch::rand({4, 3}).to(kBF16);
  const auto target = torch::tensor({0, 1, 2, 0});
  EXPECT_EQ(torch::cross_entropy_loss(logits, target).scalar_type(), kBF16);
  const Autocast guard(torch::kCPU, kBF16, OpPolicy::cuda_like());
  EXPECT_EQ(torch::cross_entropy_loss(logits, target).scalar_type(), kFloat);
  // An op that some policy named and this one leaves behaves as one that none ever named.
  const Autocast other(torch::kCPU, kBF16, OpPolicy::cuda_like());
  {
    OpPolicy naming = OpPolicy::cuda_like();
    naming.set("aten::cross_entropy_loss", Cast::lower_precision);
    const Autocast named(torch::kCPU, kBF16, naming);
    EXPECT_EQ(torch::cross_entropy_loss(logits, target).scalar_type(), kBF16);
  }
  EXPECT_EQ(torch::cross_entropy_loss(logits, target).scalar_type(), kFloat);
}

TEST(OpPolicy, RefusedOpsAreAnErrorThatSaysSo) {
  const auto p = torch::rand({4}), t = torch::rand({4});
  const Autocast guard(torch::kCPU, kBF16, OpPolicy::cuda_like());
  EXPECT_EQ(
      error_of([&] { torch::binary_cross_entropy(p, t); }),
      "[amp.Autocast] expected an op that is safe under autocast, got aten::binary_cross_entropy; run it "
      "where autocast is off, or list it as fp32");
}

struct GeluNet : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(8, 16));
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(16, 8));

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::log_softmax(second(norm(torch::gelu(first(x)))), 1);
  }
};

// The same casts written by hand give the same numbers, forward and backward.
TEST(OpPolicy, ForwardAndGradientsEqualCastsWrittenByHand) {
  torch::manual_seed(3);
  const auto net = std::make_shared<GeluNet>();
  const auto x = torch::randn({5, 8});
  {
    const Autocast guard(torch::kCPU, kBF16, OpPolicy::cuda_like());
    const auto y = net->forward(x);
    EXPECT_EQ(y.scalar_type(), kFloat);
    y.select(1, 2).sum().backward();
  }
  const auto low = [](const torch::Tensor& t) { return t.to(kBF16); };
  const auto linear = [&](const torch::Tensor& in, const torch::nn::Linear& layer) {
    return torch::linear(low(in), low(layer->weight), low(layer->bias));
  };
  std::map<std::string, torch::Tensor> got;
  for (const auto& item : net->named_parameters()) got[item.key()] = item.value().grad().clone();
  net->zero_grad();
  auto h = torch::gelu(linear(x, net->first));
  h = torch::layer_norm(h.to(kFloat), {16}, net->norm->weight, net->norm->bias);
  const auto y = torch::log_softmax(linear(h, net->second), 1, kFloat);
  y.select(1, 2).sum().backward();
  for (const auto& item : net->named_parameters()) {
    EXPECT_EQ(got[item.key()].scalar_type(), kFloat);
    EXPECT_TRUE(torch::equal(got[item.key()], item.value().grad())) << item.key();
    EXPECT_GT(item.value().grad().abs().sum().item<float>(), 0) << item.key();
  }
}

TEST(OpPolicy, LibTorchsListsByOurMeansGiveLibTorchsResult) {
  torch::manual_seed(4);
  const auto net = std::make_shared<GeluNet>();
  const auto x = torch::randn({5, 8});
  torch::Tensor theirs;
  {
    const Autocast guard(torch::kCPU, kBF16);
    theirs = net->forward(x);
  }
  const Autocast guard(torch::kCPU, kBF16, OpPolicy::libtorch_cpu());
  const auto ours = net->forward(x);
  EXPECT_EQ(ours.scalar_type(), kBF16);
  EXPECT_TRUE(torch::equal(ours, theirs));
}

TEST(OpPolicy, ACapturedModelFollowsItAsTheModelDoes) {
  torch::manual_seed(5);
  const auto net = std::make_shared<GeluNet>();
  const auto x = torch::randn({5, 8});
  const Autocast guard(torch::kCPU, kBF16, OpPolicy::cuda_like());
  const auto captured = ulp::capture(net, {x});  // capture itself is not to be touched by the guard
  EXPECT_TRUE(torch::equal(captured->forward(x), net->forward(x)));
}

TEST(OpPolicy, AWeightUsedTwiceGetsBothGradients) {
  const auto w = torch::ones({4, 4}).requires_grad_();
  const auto x = torch::ones({2, 4});
  const Autocast guard(torch::kCPU, kBF16, OpPolicy::cuda_like());
  {
    const torch::NoGradGuard no_grad;
    torch::mm(x, w);
  }
  (torch::mm(x, w) + torch::mm(x, w)).sum().backward();
  EXPECT_TRUE(torch::equal(w.grad(), torch::full({4, 4}, 4.0)));
  {
    const torch::NoGradGuard no_grad;
    w.fill_(2);
  }
  EXPECT_EQ(torch::mm(x, w)[0][0].item<float>(), 8);
}

}  // namespace
