#include "ulp/amp/autocast.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>
#include <thread>

#include "ulp/base/error.h"

namespace {

using ulp::amp::Autocast;

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

// pytorch #112583: the cast cached under no-grad has no graph and is used again where the gradient is wanted.
TEST(Autocast, AWeightFirstUsedUnderNoGradKeepsItsGradient) {
  auto linear = torch::nn::Linear(4, 3);
  const Autocast guard(torch::kCPU, torch::kBFloat16);
  {
    const torch::NoGradGuard no_grad;
    linear(torch::ones({2, 4}));
  }
  linear(torch::ones({2, 4})).sum().backward();
  ASSERT_TRUE(linear->weight.grad().defined());
  ASSERT_TRUE(linear->bias.grad().defined());
  EXPECT_GT(linear->weight.grad().abs().sum().item<float>(), 0);
}

TEST(Autocast, AWeightChangedInPlaceIsSeenInTheSameScope) {
  auto linear = torch::nn::Linear(torch::nn::LinearOptions(4, 3).bias(false));
  const Autocast guard(torch::kCPU, torch::kBFloat16);
  linear(torch::ones({2, 4}));
  {
    const torch::NoGradGuard no_grad;
    linear->weight.fill_(2);
  }
  EXPECT_EQ(linear(torch::ones({2, 4}))[0][0].item<float>(), 8);
}

// pytorch #86136: LibTorch's cache is one for all threads; what a thread cast stayed there after the thread
// was gone.
TEST(Autocast, NothingOfAThreadStaysBehind) {
  auto linear = torch::nn::Linear(4, 3);
  const auto references = [&] { return linear->weight.getIntrusivePtr().weak_use_count(); };
  const Autocast guard(torch::kCPU, torch::kBFloat16);
  linear(torch::ones({2, 4}));
  const auto before = references();
  std::thread worker([&] {
    EXPECT_EQ(dtype_of_matmul(), torch::kFloat) << "a guard of one thread acts on another";
    const Autocast own(torch::kCPU, torch::kHalf);
    linear(torch::ones({2, 4}));
    EXPECT_EQ(dtype_of_matmul(), torch::kHalf);
  });
  worker.join();
  EXPECT_EQ(references(), before);
  EXPECT_EQ(dtype_of_matmul(), torch::kBFloat16);
}

TEST(Autocast, WeightsAreNotHeldByACacheInsideTheScope) {
  auto linear = torch::nn::Linear(4, 3);
  const auto before = linear->weight.getIntrusivePtr().weak_use_count();
  const Autocast guard(torch::kCPU, torch::kBFloat16);
  linear(torch::ones({2, 4}));
  EXPECT_EQ(linear->weight.getIntrusivePtr().weak_use_count(), before);
}

}  // namespace
