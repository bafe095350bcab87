// Integers that steps compute in f32: LibTorch's while they are below 2^24, and the end of the run, by name,
// from there on, also where what follows would make them small again.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "error_of.h"
#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"

namespace ulp::test {
namespace {

struct Case {
  const char* name;
  Body body;
  at::Tensor small, large;  ///< inputs whose numbers stay below the limit, and some that do not
};

at::Tensor rows(std::initializer_list<int64_t> values) {
  return torch::tensor(std::vector<int64_t>(values), torch::kLong).unsqueeze(0).repeat({2, 1});
}

std::vector<Case> cases() {
  return {
      {"add", [](const at::Tensor& x) { return x + x.slice(1, 0, 1); }, rows({5, 6}), rows({9'000'000, 1})},
      {"add back", [](const at::Tensor& x) { return (x + 9'000'000) - 9'000'000; }, rows({5, 6}),
       rows({8'000'001, 1})},
      {"add of two that are made", [](const at::Tensor& x) { return x.neg().flip(1) + x.neg().roll(1, 1); },
       rows({5, 6, 7}), rows({9'000'000, 9'000'001, 1})},
      {"relu of a sum",
       [](const at::Tensor& x) { return (x.abs().flip(1) + x.abs().roll(1, 1)).relu().clamp_max(9); },
       rows({5, 6, -7}), rows({9'000'000, 9'000'001, 1})},
      {"alpha", [](const at::Tensor& x) { return x.add(x.slice(1, 0, 1), 3); }, rows({5, 6}),
       rows({6'000'001, -16'000'000})},
      {"sub", [](const at::Tensor& x) { return x - x.slice(1, 0, 1); }, rows({5, 6}),
       rows({9'000'000, -9'000'001})},
      {"hash", [](const at::Tensor& x) { return (x * 7919 + 13).floor_divide(1000); }, rows({1, 2000}),
       rows({3000, 1})},
      {"square", [](const at::Tensor& x) { return x.square().clamp_max(10); }, rows({4095, 7}),
       rows({4097, 7})},
      {"pow", [](const at::Tensor& x) { return x.pow(3).clamp_max(10); }, rows({255, 7}), rows({257, 7})},
      {"compared", [](const at::Tensor& x) { return (x * x).eq(x.slice(1, 0, 1) * x).to(torch::kFloat); },
       rows({4095, 7}), rows({16'777'215, 3})},
      {"addcmul", [](const at::Tensor& x) { return torch::addcmul(x, x, x.slice(1, 0, 1)); }, rows({5, 6}),
       rows({5000, -5000})},
      {"not", [](const at::Tensor& x) { return x.bitwise_not(); }, rows({5, -6}), rows({16'777'215, 1})},
      {"sum", [](const at::Tensor& x) { return x.sum({1}, true) + x.slice(1, 0, 1); }, rows({5, 6}),
       rows({-16'000'001, 1})},
      {"sum of", [](const at::Tensor& x) { return (x * 2).sum({1}, true); }, rows({5, 6}),
       rows({8'000'001, 8'000'000})},
      {"cumsum", [](const at::Tensor& x) { return x.cumsum(1) % 10; }, rows({5, 6, -3}),
       rows({16'000'000, 1'000'001, -16'000'000})},
      {"scatter_add",
       [](const at::Tensor& x) { return torch::zeros_like(x).scatter_add(1, x.gt(6).to(torch::kLong), x); },
       rows({5, 6, 7}), rows({16'000'000, 1'000'001, 1})},
      {"max of sums", [](const at::Tensor& x) { return (x + x).amax({1}, true); }, rows({5, 6}),
       rows({9'000'001, 6})},
      {"ids of a table",
       [](const at::Tensor& x) {
         return torch::arange(8, torch::kFloat).index({(x * 5'592'406).clamp(0, 7)});
       },
       rows({1, 2}), rows({3, 5})},
  };
}

TEST(IntegerResults, AreExactOrEndTheRun) {
  for (const Case& one : cases()) {
    SCOPED_TRACE(one.name);
    const auto module = captured_body(one.body, one.small);
    const runtime::Plan plan = lower(*module);
    for (const int threads : {1, 3}) {
      runtime::Engine engine(plan, {.threads = threads});
      EXPECT_TRUE(run_engine(engine, one.small)
                      .to(torch::kDouble)
                      .equal(module->forward(one.small).to(torch::kDouble)));
      const std::string error = error_of([&] { run_engine(engine, one.large); });
      EXPECT_SAYS(error, "which f32 holds, got ");
      EXPECT_SAYS(error, "16777215");
      EXPECT_TRUE(run_engine(engine, one.small)
                      .to(torch::kDouble)
                      .equal(module->forward(one.small).to(torch::kDouble)));
    }
  }
}

TEST(IntegerResults, ProductsOfMatricesAreLeftToLibTorch) {
  const auto module =
      captured_body([](const at::Tensor& x) { return torch::bmm(x.unsqueeze(1), x.unsqueeze(2)).squeeze(2); },
                    rows({1, 2}));
  EXPECT_SAYS(error_of([&] { lower(*module); }), "whose sums of products pass what f32 holds");
}

/// Integers of 32 bits that are inputs, and those that steps make.
TEST(IntegerResults, OfInputsAndOfStepsAreJoined) {
  for (const auto type : {torch::kInt, torch::kLong}) {
    for (const Body& body : {Body([](const at::Tensor& x) {
                               return torch::cat({x, x * 3}, 1) + 1;
                             }),
                             Body([](const at::Tensor& x) {
                               return torch::stack({x + 5, x}, 2).sum({2});
                             })}) {
      const at::Tensor x = rows({5, -6, 1'000'000}).to(type);
      const auto module = captured_body(body, x);
      const runtime::Plan plan = lower(*module);
      runtime::Engine engine(plan, {.threads = 1});
      EXPECT_TRUE(run_engine(engine, x).to(torch::kDouble).equal(module->forward(x).to(torch::kDouble)));
      EXPECT_SAYS(error_of([&] { run_engine(engine, x * 17); }), "which f32 holds");
    }
  }
}

/// Inputs of another type are brought to the engine's where it has their numbers.
TEST(IntegerResults, InputsThatAreNoIntegersOfTheTypeAreRefused) {
  for (const auto type : {torch::kByte, torch::kInt, torch::kLong}) {
    const at::Tensor x = rows({5, 6, 7}).to(type);
    const auto module = captured_body([](const at::Tensor& y) { return y.clamp_max(6); }, x);
    runtime::Engine engine(lower(*module), {.threads = 1});
    const auto say = [&](const at::Tensor& given, const std::string& words) {
      EXPECT_SAYS(error_of([&] { run_engine(engine, given); }), words);
    };
    for (const auto other : {torch::kByte, torch::kShort, torch::kLong, torch::kFloat, torch::kDouble})
      EXPECT_TRUE(run_engine(engine, x.to(other)).to(type).equal(module->forward(x)));
    at::Tensor wrong = x.to(torch::kDouble);
    wrong[1][2] = 2.5;
    say(wrong, "', got 2.5 at element 5");
    say(wrong.to(torch::kHalf), "', got 2.5 at element 5");
    wrong[1][2] = std::nan("");
    say(wrong, "at element 5");
    wrong[0][0] = 1e30;
    say(wrong, "', got 1e+30 at element 0");
    if (type == torch::kByte) say(x.to(torch::kLong).add(250), "', got 256 at element 1");
    if (type == torch::kInt) say(x.to(torch::kLong).mul(int64_t{1} << 31), "at element 0");
  }
}

/// Quotients and remainders near the limit of f32, where a quotient times the divisor passes it, and of
/// floats, whose quotients round to the next integer.
TEST(IntegerResults, QuotientsAndRemaindersAreLibTorchs) {
  torch::manual_seed(9);
  for (const bool integers : {true, false}) {
    at::Tensor x = torch::randint(-16'777'215, 16'777'216, {2, 200}, torch::kLong);
    x.slice(1, 0, 20).fill_(-16'777'215);
    if (!integers) x = torch::cat({x / 1e6, torch::arange(-50, 50).div(10.0).repeat({2, 1})}, 1);
    const at::Tensor divisors = integers
                                    ? torch::randint(1, 9973, x.sizes().slice(1), torch::kLong) *
                                          (torch::randint(0, 2, x.sizes().slice(1)) * 2 - 1).to(torch::kLong)
                                    : torch::randn(x.sizes().slice(1));
    for (const double number : {9973.0, -9973.0, 7.0, -3.0, 0.1, -0.3}) {
      if (integers && number != std::round(number)) continue;
      const at::Scalar by = integers ? at::Scalar(static_cast<int64_t>(number)) : at::Scalar(number);
      for (const Body& body : {Body([&](const at::Tensor& y) { return y.remainder(by); }),
                               Body([&](const at::Tensor& y) { return y.remainder(divisors); }),
                               Body([&](const at::Tensor& y) { return torch::floor_divide(y, by); }),
                               Body([&](const at::Tensor& y) { return torch::floor_divide(y, divisors); }),
                               Body([&](const at::Tensor& y) { return torch::div(y, divisors, "floor"); }),
                               Body([&](const at::Tensor& y) { return torch::div(y, by, "trunc"); })}) {
        const auto module = captured_body(body, x);
        runtime::Engine engine(lower(*module), {.threads = 1});
        EXPECT_TRUE(run_engine(engine, x).to(torch::kDouble).equal(module->forward(x).to(torch::kDouble)))
            << number << ' ' << integers;
      }
    }
  }
}

/// Drawn formulas of int64 on drawn numbers of all magnitudes: every run is LibTorch's, or ends by name.
TEST(IntegerResults, DrawnFormulasAreExactOrEndTheRun) {
  std::mt19937 random(3);
  const auto draw = [&](int kinds) { return static_cast<int>(random() % static_cast<unsigned>(kinds)); };
  int right = 0, ended = 0;
  for (int net = 0; net < 40; ++net) {
    SCOPED_TRACE(net);
    std::vector<std::pair<int, int64_t>> steps;
    for (int i = 0; i < 4; ++i) steps.emplace_back(draw(10), 1 + draw(2000));
    const Body body = [&](const at::Tensor& x) {
      at::Tensor y = x;
      for (const auto& [op, number] : steps) {
        switch (op) {
          case 0:
            y = y + number;
            break;
          case 1:
            y = y * number;
            break;
          case 2:
            y = y - x * number;
            break;
          case 3:
            y = y % (number + 1);
            break;
          case 4:
            y = torch::maximum(y, x + number);
            break;
          case 5:
            y = y.floor_divide(number);
            break;
          case 6:
            y = torch::where(y > number, y, -x);
            break;
          case 7:
            y = y.cumsum(1);
            break;
          case 8:
            y = y.clamp(-number * 1000, number * 1000);
            break;
          default:
            y = y + y.sum({1}, true);
        }
      }
      return y;
    };
    const at::Tensor example = torch::ones({2, 6}, torch::kLong);
    const auto module = captured_body(body, example);
    runtime::Plan plan;
    try {
      plan = lower(*module);
    } catch (const Error& error) {  // digits of products
      EXPECT_SAYS(std::string(error.what()), "expected integers below 2^24, got a product");
      continue;
    }
    runtime::Engine engine(plan, {.threads = 1});
    for (int run = 0; run < 6; ++run) {
      at::Tensor x = example.clone();
      const int64_t largest = int64_t{1} << (4 * run + 3);
      for (int64_t i = 0; i < x.numel(); ++i)
        x.view(-1)[i] = static_cast<int64_t>(random() % static_cast<uint64_t>(2 * largest)) - largest;
      try {
        EXPECT_TRUE(run_engine(engine, x).to(torch::kLong).equal(module->forward(x))) << x;
        ++right;
      } catch (const Error& error) {
        EXPECT_SAYS(std::string(error.what()), "which f32 holds");
        ++ended;
      }
    }
  }
  EXPECT_GE(right, 60);
  EXPECT_GE(ended, 40);
}

}  // namespace
}  // namespace ulp::test
