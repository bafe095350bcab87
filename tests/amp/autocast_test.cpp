#include "ulp/amp/autocast/autocast.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "ulp/amp/autocast/op_policy.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace {

using ulp::amp::Autocast;
using ulp::amp::OpPolicy;

// Everything a guard may change on this thread.
struct State {
  bool cpu = at::autocast::is_autocast_enabled(at::kCPU);
  bool cuda = at::autocast::is_autocast_enabled(at::kCUDA);
  at::ScalarType cpu_dtype = at::autocast::get_autocast_dtype(at::kCPU);
  at::ScalarType cuda_dtype = at::autocast::get_autocast_dtype(at::kCUDA);
  bool cache = at::autocast::is_autocast_cache_enabled();
  int nesting = at::autocast::increment_nesting() - 1;

  State() { at::autocast::decrement_nesting(); }
  bool operator==(const State&) const = default;
};

at::ScalarType dtype_of_matmul() {
  const auto a = torch::ones({2, 2});
  return torch::matmul(a, a).scalar_type();
}

TEST(Autocast, RunsEligibleOperationsInTheDtypeOfTheGuard) {
  for (auto dtype : {torch::kBFloat16, torch::kHalf}) {
    const Autocast guard(torch::kCPU, dtype);
    EXPECT_EQ(dtype_of_matmul(), dtype);
  }
  EXPECT_EQ(dtype_of_matmul(), torch::kFloat);
}

TEST(Autocast, LeavesDoubleAndIntegersAlone) {
  const Autocast guard(torch::kCPU, torch::kBFloat16);
  const auto d = torch::ones({2, 2}, torch::kDouble);
  EXPECT_EQ(torch::matmul(d, d).scalar_type(), torch::kDouble);
  const auto i = torch::ones({2, 2}, torch::kLong);
  EXPECT_EQ(torch::matmul(i, i).scalar_type(), torch::kLong);
}

TEST(Autocast, NestsWithLocalOptOut) {
  const State before;
  {
    const Autocast outer(torch::kCPU, torch::kBFloat16);
    EXPECT_EQ(State().nesting, before.nesting + 1);
    {
      const Autocast inner(torch::kCPU, torch::kHalf);
      EXPECT_EQ(State().nesting, before.nesting + 2);
      EXPECT_EQ(dtype_of_matmul(), torch::kHalf);
      {
        const Autocast off(torch::kCPU, torch::kBFloat16, false);
        EXPECT_EQ(dtype_of_matmul(), torch::kFloat);
      }
      EXPECT_EQ(dtype_of_matmul(), torch::kHalf);
    }
    EXPECT_EQ(dtype_of_matmul(), torch::kBFloat16);
  }
  EXPECT_EQ(State(), before);
}

TEST(Autocast, RestoresWhateverWasSetBefore) {
  const State clean;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  at::autocast::set_autocast_cache_enabled(false);
  const State before;
  { const Autocast guard(torch::kCPU, torch::kBFloat16, false); }
  EXPECT_EQ(State(), before);
  at::autocast::set_autocast_enabled(at::kCPU, clean.cpu);
  at::autocast::set_autocast_dtype(at::kCPU, clean.cpu_dtype);
  at::autocast::set_autocast_cache_enabled(clean.cache);
}

TEST(Autocast, DevicesAreIndependent) {
  const State before;
  {
    const Autocast guard(torch::kCUDA, torch::kHalf);
    EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCUDA));
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCUDA), at::kHalf);
    EXPECT_EQ(dtype_of_matmul(), torch::kFloat);
    const Autocast cpu(torch::kCPU, torch::kBFloat16);
    EXPECT_EQ(dtype_of_matmul(), torch::kBFloat16);
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCUDA), at::kHalf);
  }
  EXPECT_EQ(State(), before);
}

TEST(Autocast, AnExceptionLeavesNothingBehind) {
  const State before;
  try {
    const Autocast outer(torch::kCPU, torch::kBFloat16);
    const Autocast inner(torch::kCPU, torch::kHalf);
    torch::matmul(torch::ones({2, 2}), torch::ones({3, 3}));
    FAIL() << "no error";
  } catch (const c10::Error&) {
  }
  EXPECT_EQ(State(), before);
}

// oneDNN has no LSTM below fp32 for some processors, and LibTorch's own autocast throws there.
TEST(Autocast, AnLstmTrainsOnEveryProcessor) {
  torch::manual_seed(1);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true));
  const auto x = torch::randn({5, 2, 3});
  const auto expected = std::get<0>(lstm->forward(x));
  expected.sum().backward();
  const auto gradient = lstm->named_parameters()["weight_ih_l0"].grad().clone();
  for (auto dtype : {torch::kBFloat16, torch::kHalf}) {
    lstm->zero_grad();
    torch::Tensor y;
    {
      const Autocast guard(torch::kCPU, dtype);
      y = std::get<0>(lstm->forward(x));
      EXPECT_EQ(dtype_of_matmul(), dtype);  // all else is LibTorch's
    }
    y.sum().backward();
    EXPECT_TRUE(torch::allclose(y.to(torch::kFloat), expected, 0.02, 0.02)) << dtype;
    EXPECT_TRUE(torch::allclose(lstm->named_parameters()["weight_ih_l0"].grad(), gradient, 0.05, 0.05))
        << dtype;
  }
}

/// A classifier over the last state of an LSTM.
struct PolicyLstm : torch::nn::Module {
  torch::nn::LSTM lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(3, 4).num_layers(2)));
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(4, 2));
  torch::Tensor forward(const torch::Tensor& x) { return fc(std::get<0>(lstm(x)).select(0, -1)); }
};

TEST(Autocast, AnLstmTrainsUnderEveryPolicy) {
  torch::manual_seed(1);
  PolicyLstm model;
  const auto x = torch::randn({5, 2, 3});
  const auto captured = ulp::capture(model, {x}, {.batch_dims = {1}});
  const auto expected = model.forward(x);
  for (const OpPolicy* policy : {&OpPolicy::libtorch_cpu(), &OpPolicy::cuda_like()}) {
    for (auto dtype : {torch::kBFloat16, torch::kHalf}) {
      for (const bool graph : {false, true}) {
        for (const bool gradients : {true, false}) {
          const torch::AutoGradMode mode(gradients);
          model.zero_grad();
          torch::Tensor y;
          {
            const Autocast guard(torch::kCPU, dtype, *policy);
            y = graph ? captured->forward(x) : model.forward(x);
          }
          EXPECT_EQ(y.scalar_type(), dtype) << graph;  // of the linear layer behind it
          EXPECT_TRUE(torch::allclose(y.to(torch::kFloat), expected, 0.03, 0.03)) << dtype << graph;
          if (!gradients) continue;
          y.to(torch::kFloat).sum().backward();
          EXPECT_TRUE(model.lstm->named_parameters()["weight_ih_l1"].grad().isfinite().all().item<bool>());
        }
      }
    }
  }
}

TEST(Autocast, RefusedArgumentsLeaveNothingBehind) {
  const State before;
  EXPECT_THROW(Autocast(torch::kCPU, torch::kFloat), ulp::Error);
  EXPECT_THROW(Autocast(torch::kCPU, torch::kInt8), ulp::Error);
  EXPECT_THROW(Autocast(torch::kMeta, torch::kHalf), ulp::Error);
  EXPECT_EQ(State(), before);
  try {
    Autocast guard(torch::kCPU, torch::kFloat);
  } catch (const ulp::Error& error) {
    EXPECT_STREQ(error.what(), "[amp.Autocast] expected the dtype BFloat16 or Half, got Float");
  }
}

TEST(Autocast, GradientsComeBackInFp32) {
  auto linear = torch::nn::Linear(4, 3);
  torch::Tensor loss;
  {
    const Autocast guard(torch::kCPU, torch::kBFloat16);
    const auto y = linear(torch::ones({2, 4}));
    EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
    loss = y.to(torch::kFloat).sum();
  }
  loss.backward();
  EXPECT_EQ(linear->weight.grad().scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::equal(linear->weight.grad(), torch::full({3, 4}, 2.0)));
}

// A weight that LibTorch's own guard would cache: an fp32 leaf that requires a gradient and is used as it is.
// (The C++ Linear transposes its weight first, and a view is never cached.)
struct CachedWeight {
  torch::Tensor value = torch::ones({4, 3}).requires_grad_();
  torch::Tensor use() const { return torch::matmul(torch::ones({2, 4}), value); }
  size_t weak_references() const { return value.getIntrusivePtr().weak_use_count(); }
};

// Without this the tests below could pass because the cache was not reached at all.
TEST(Autocast, TheWeightOfTheseTestsIsOneThatLibTorchCaches) {
  const CachedWeight weight;
  const auto before = weight.weak_references();
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  weight.use();
  EXPECT_GT(weight.weak_references(), before);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::decrement_nesting();
  at::autocast::clear_cache();
}

// pytorch #112583: the cast cached under no-grad has no graph and is used again where the gradient is wanted.
TEST(Autocast, AWeightFirstUsedUnderNoGradKeepsItsGradient) {
  const CachedWeight weight;
  const Autocast guard(torch::kCPU, torch::kBFloat16);
  {
    const torch::NoGradGuard no_grad;
    weight.use();
  }
  weight.use().sum().backward();
  ASSERT_TRUE(weight.value.grad().defined());
  EXPECT_TRUE(torch::equal(weight.value.grad(), torch::full({4, 3}, 2.0)));
}

TEST(Autocast, AWeightChangedInPlaceIsSeenInTheSameScope) {
  const CachedWeight weight;
  const Autocast guard(torch::kCPU, torch::kBFloat16);
  EXPECT_EQ(weight.use()[0][0].item<float>(), 4);
  {
    const torch::NoGradGuard no_grad;
    weight.value.fill_(2);
  }
  EXPECT_EQ(weight.use()[0][0].item<float>(), 8);
}

// pytorch #86136: LibTorch's cache is one for all threads; what one cast, in its dtype, was found by the
// others and stayed there after the thread was gone.
TEST(Autocast, ThreadsDoNotMeet) {
  const CachedWeight weight;
  const Autocast guard(torch::kCPU, torch::kBFloat16);
  weight.use();
  const auto before = weight.weak_references();
  std::vector<at::ScalarType> seen;
  std::thread worker([&] {
    seen.push_back(dtype_of_matmul());
    const Autocast own(torch::kCPU, torch::kHalf);
    seen.push_back(dtype_of_matmul());
    try {
      seen.push_back(weight.use().scalar_type());
    } catch (const c10::Error&) {  // a bf16 weight from the other thread meets an fp16 input
    }
  });
  worker.join();
  EXPECT_EQ(seen, (std::vector<at::ScalarType>{torch::kFloat, torch::kHalf, torch::kHalf}));
  EXPECT_EQ(weight.weak_references(), before);
  EXPECT_EQ(dtype_of_matmul(), torch::kBFloat16);
}

TEST(Autocast, AnotherDtypeInsideTheScopeGetsItsOwnCast) {
  const CachedWeight weight;
  const Autocast outer(torch::kCPU, torch::kBFloat16);
  weight.use();
  const Autocast inner(torch::kCPU, torch::kHalf);
  EXPECT_EQ(weight.use().scalar_type(), torch::kHalf);
}

TEST(Autocast, WeightsAreNotHeldByACacheInsideTheScope) {
  const CachedWeight weight;
  const auto before = weight.weak_references();
  const Autocast guard(torch::kCPU, torch::kBFloat16);
  weight.use();
  EXPECT_EQ(weight.weak_references(), before);
}

}  // namespace
