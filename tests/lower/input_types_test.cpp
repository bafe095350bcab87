// Inputs of bool, uint8 and int32: masks, images as bytes, ids.
#include <gtest/gtest.h>

#include <random>

#include "error_of.h"
#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/lower/partitioned_model.h"

namespace ulp::test {
namespace {

/// A network of several inputs whose forward is a function.
struct Mixed : torch::nn::Module {
  std::function<at::Tensor(const std::vector<at::Tensor>&)> body;
  at::Tensor forward(at::Tensor a, at::Tensor b) { return body({a, b}); }
};

std::shared_ptr<graph::GraphModule> captured_mixed(
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& body,
    const std::vector<at::Tensor>& examples) {
  const torch::NoGradGuard no_grad;
  Mixed model;
  model.body = body;
  model.eval();
  auto graph = ulp::capture(model, examples);
  graph->eval();
  return graph;
}

at::Tensor flags(at::IntArrayRef sizes) {
  return torch::rand(sizes) > 0.4;
}

at::Tensor bytes(at::IntArrayRef sizes) {
  return torch::randint(256, sizes, torch::kByte);
}

TEST(InputTypes, MasksOfBoolDoWhatTheyDoInTheGraph) {
  torch::manual_seed(3);
  using List = std::vector<at::Tensor>;
  const std::vector<std::function<at::Tensor(const List&)>> bodies = {
      [](const List& x) { return x[0].masked_fill(x[1], -2.5); },
      [](const List& x) { return torch::where(x[1], x[0], x[0] * x[0]); },
      [](const List& x) { return x[0] * x[1].to(torch::kFloat); },
      [](const List& x) { return x[0] * x[1].logical_not(); },
      [](const List& x) { return x[0].masked_fill(~x[1] | (x[0] > 1), 0.25); },
      [](const List& x) { return (x[0] * x[1]).sum(1) / x[1].sum(1).clamp_min(1); },
      [](const List& x) { return x[0].masked_fill(x[1].any(1, true), 7); },
      [](const List& x) {
        return torch::cat({x[0], x[1].flip(1).to(torch::kFloat)}, 1);
      },
      [](const List& x) { return x[0] + x[1].to(torch::kLong).cumsum(1); },
      [](const List& x) { return torch::softmax(x[0].masked_fill(x[1].slice(1, 0, 1), -1e9), 1); }};
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(i);
    const auto graph = captured_mixed(bodies[i], {torch::randn({2, 6}), flags({2, 6})});
    const runtime::Plan plan = lower(*graph);
    EXPECT_EQ(plan.tensors[static_cast<size_t>(plan.inputs[1])].type, runtime::DataType::u8);
    runtime::Engine engine(plan, {.threads = 2});
    for (const int64_t batch : {1, 3, 9}) {
      const at::Tensor x = torch::randn({batch, 6}), mask = flags({batch, 6});
      EXPECT_LE(relative_error(run_engine_all(engine, {x, mask})[0], graph->forward_all({x, mask})[0]), 1e-6);
    }
  }
}

/// A mask from C may have any byte for true.
TEST(InputTypes, EveryByteButZeroIsTrue) {
  const auto graph =
      captured_mixed([](const std::vector<at::Tensor>& x) { return x[0] + x[1].to(torch::kFloat); },
                     {torch::zeros({2, 3}), torch::ones({2, 3}, torch::kBool)});
  runtime::Engine engine(lower(*graph), {.threads = 1});
  const std::vector<float> zeros(6);
  const std::vector<uint8_t> mask = {0, 1, 2, 255, 0, 128};
  std::vector<float> sums(6);
  const void* in[] = {zeros.data(), mask.data()};
  void* out[] = {sums.data()};
  engine.run(2, in, out);
  EXPECT_EQ(sums, (std::vector<float>{0, 1, 1, 1, 0, 1}));
}

TEST(InputTypes, ImagesOfBytesAreTheirNumbers) {
  torch::manual_seed(4);
  auto net = std::make_shared<Net>();
  auto conv = net->add("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)));
  const std::vector<std::pair<std::vector<int64_t>, Body>> ways = {
      {{3, 8, 8}, [](const at::Tensor& x) { return x.to(torch::kFloat) / 255; }},
      {{8, 8, 3},
       [](const at::Tensor& x) {
         return x.permute({0, 3, 1, 2}).to(torch::kFloat).div(127.5).sub(1);
       }},
      {{3, 8, 8}, [](const at::Tensor& x) { return x.flip(3).to(torch::kFloat); }}};
  for (const auto& way : ways) {
    const std::vector<int64_t>& item = way.first;
    const auto sized = [&](int64_t batch) { return bytes({batch, item[0], item[1], item[2]}); };
    net->body = [conv, make = way.second](const at::Tensor& x) mutable { return conv->forward(make(x)); };
    const auto graph = captured(net, sized(2));
    runtime::Engine engine(lower(*graph), {.threads = 2});
    EXPECT_EQ(engine.inputs()[0].type, runtime::DataType::u8);
    for (const int64_t batch : {1, 5}) {
      const at::Tensor x = sized(batch);
      EXPECT_LE(relative_error(run_engine(engine, x), graph->forward(x)), 1e-5);
    }
  }
}

/// LibTorch keeps sums of bytes in a byte.
TEST(InputTypes, BytesWrapAroundAsInLibTorch) {
  torch::manual_seed(5);
  const std::vector<Body> bodies = {[](const at::Tensor& x) { return x + 200; },
                                    [](const at::Tensor& x) { return 1 - x; },
                                    [](const at::Tensor& x) { return x * x; },
                                    [](const at::Tensor& x) { return x.bitwise_not(); },
                                    [](const at::Tensor& x) { return (x * 3 + 7) % 11; },
                                    [](const at::Tensor& x) { return x.clamp(10, 20); },
                                    [](const at::Tensor& x) { return x.to(torch::kChar) + 1; },
                                    [](const at::Tensor& x) { return torch::where(x > 99, x, x + x); },
                                    [](const at::Tensor& x) { return x.bitwise_and(0x3c) + x; }};
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(i);
    const Body body = [&](const at::Tensor& x) { return bodies[i](x).to(torch::kFloat) * 0.5; };
    const auto graph = captured_body(body, bytes({2, 64}));
    runtime::Engine engine(lower(*graph), {.threads = 1});
    const at::Tensor x = bytes({5, 64});
    EXPECT_TRUE(torch::equal(run_engine(engine, x), graph->forward(x)));
  }
}

/// Every byte, in rows of 16.
at::Tensor all_bytes() {
  return torch::arange(256).to(torch::kByte).view({16, 16});
}

void expect_equal(const Body& whole, const at::Tensor& x) {
  const Body body = [&](const at::Tensor& given) { return whole(given).to(torch::kFloat) * 0.5; };
  const auto graph = captured_body(body, x.slice(0, 0, 2));
  runtime::Plan plan;
  ASSERT_NO_THROW(plan = lower(*graph)) << error_of([&] { lower(*graph); });
  runtime::Engine engine(plan, {.threads = 1});
  EXPECT_TRUE(torch::equal(run_engine(engine, x), graph->forward(x))) << listing(plan);
}

/// Results and numbers beyond the type, at every number of 8 bits with and without sign.
TEST(InputTypes, EveryNumberOf8BitsWrapsAroundAsInLibTorch) {
  const at::Tensor beyond = torch::tensor(300), below = torch::tensor(-77);
  const std::vector<Body> bodies = {
      [](const at::Tensor& x) { return x.floor_divide(-1); },
      [](const at::Tensor& x) { return torch::div(x, -1, "floor"); },
      [](const at::Tensor& x) { return torch::div(x, -1, "trunc"); },
      [](const at::Tensor& x) { return x.floor_divide(300); },
      [](const at::Tensor& x) { return x.remainder(300); },
      [](const at::Tensor& x) { return x.fmod(-300); },
      [](const at::Tensor& x) { return -x; },
      [=](const at::Tensor& x) { return torch::where(x > 3, x, beyond); },
      [=](const at::Tensor& x) { return torch::maximum(x, beyond); },
      [=](const at::Tensor& x) { return torch::minimum(x, below) + 1; },
      [=](const at::Tensor& x) { return x * beyond; },
      [=](const at::Tensor& x) { return x.eq(beyond); },
      [](const at::Tensor& x) { return x.eq(300); },
      [](const at::Tensor& x) { return x.lt(300); },
      [](const at::Tensor& x) { return x.gt(-1); },
      [](const at::Tensor& x) { return x.le(-200); },
      [](const at::Tensor& x) { return x.ne(300.0); },
      [](const at::Tensor& x) { return x.to(torch::kBool).ne(257); },
      [](const at::Tensor& x) { return torch::logical_and(x, torch::tensor(256)); },
      [](const at::Tensor& x) {
        return x.ge(torch::tensor({300, -300}).repeat({8}));
      },
      [](const at::Tensor& x) { return x * 200000001; },
      [](const at::Tensor& x) { return x - 100000001; },
      [](const at::Tensor& x) { return x.bitwise_and(300); },
      [](const at::Tensor& x) { return x.bitwise_and(-37); },
      [](const at::Tensor& x) { return x.bitwise_or(300); },
      [](const at::Tensor& x) { return x.bitwise_or(-1); },
      [](const at::Tensor& x) { return x.bitwise_or(-3) + 1; },
      [](const at::Tensor& x) { return x.bitwise_xor(-37); },
      [](const at::Tensor& x) { return x.bitwise_xor(-293); },
      [](const at::Tensor& x) { return x.bitwise_and(199); },
      [](const at::Tensor& x) { return x.bitwise_or(199) + 1; },
      [](const at::Tensor& x) { return x.bitwise_xor(-200); },
      [](const at::Tensor& x) { return torch::add(x, x, 100); },
      [](const at::Tensor& x) { return torch::addcmul(x, x, x, 100); },
      [](const at::Tensor& x) { return x.pow(0); },
      [](const at::Tensor& x) { return x.pow(1); },
      [](const at::Tensor& x) { return x.pow(2); },
      [](const at::Tensor& x) { return x.pow(3); },
      [](const at::Tensor& x) { return x.square().abs(); }};
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(i);
    expect_equal(bodies[i], all_bytes());
    expect_equal([&](const at::Tensor& x) { return bodies[i](x.to(torch::kChar)); }, all_bytes());
  }
}

/// Numbers of 16 bits at both ends and around 0.
TEST(InputTypes, NumbersOf16BitsWrapAroundAsInLibTorch) {
  const at::Tensor ends = torch::tensor({-32768, -32767, -16385, -257,     -255,      -3,      -1,    0,
                                         1,      2,      127,    128,      255,       4097,    32765, 32767,
                                         32768,  65535,  65537,  16777215, -16777215, 16744447},
                                        torch::kInt)
                              .view({2, 11});
  const std::vector<Body> bodies = {[](const at::Tensor& x) { return x; },
                                    [](const at::Tensor& x) { return torch::add(x, x, 511); },
                                    [](const at::Tensor& x) { return torch::sub(x, x.flip(1), -511); },
                                    [](const at::Tensor& x) { return torch::rsub(x, x.flip(1), 300); },
                                    [](const at::Tensor& x) { return x.floor_divide(-1); },
                                    [](const at::Tensor& x) { return x.floor_divide(7); },
                                    [](const at::Tensor& x) { return x * -511; },
                                    [](const at::Tensor& x) { return x.pow(1) + 40000; },
                                    [](const at::Tensor& x) { return x.ge(65537).logical_or(x.eq(32768)); },
                                    [](const at::Tensor& x) { return x.bitwise_xor(-65792); }};
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(i);
    expect_equal([&](const at::Tensor& x) { return bodies[i](x.to(torch::kShort)); }, ends);
  }
}

/// Integers of 32 bits up to 2^24, which f32 holds: no sum on the way is larger.
TEST(InputTypes, BitsOfIntegersUpTo2To24AreExact) {
  const int64_t most = int64_t{1} << 24;
  const at::Tensor x = torch::tensor({int64_t{0}, int64_t{1}, int64_t{2}, most, most - 1, most - 2,
                                      most / 2 + 1, -most, 1 - most, int64_t{-1}, int64_t{-2}, most / 2 - 1})
                           .to(torch::kInt)
                           .view({2, 6});
  for (const int64_t number : {int64_t{0}, int64_t{-1}, most - 1, most - 2, most / 2, -most, 1 - most,
                               -most / 2, most / 2 + 1, int64_t{-6}, int64_t{0xf0f00}}) {
    SCOPED_TRACE(number);
    expect_equal([&](const at::Tensor& x) { return x.bitwise_and(number); }, x);
    expect_equal([&](const at::Tensor& x) { return x.bitwise_or(number); }, x);
    expect_equal([&](const at::Tensor& x) { return x.bitwise_xor(number); }, x);
  }
}

/// What f32 does not hold before it wraps around has no step.
TEST(InputTypes, IntegersWhoseLowBitsWouldBeLostAreRefused) {
  const auto narrow = [](const at::Tensor& x) { return x.to(torch::kChar); };
  const auto medium = [](const at::Tensor& x) { return x.to(torch::kShort); };
  const std::vector<Body> bodies = {
      [=](const at::Tensor& x) { return narrow(x).pow(4); },
      [=](const at::Tensor& x) { return x.pow(x); },
      [=](const at::Tensor& x) { return x.pow(4) + 1; },
      [=](const at::Tensor& x) { return torch::pow(2, x); },
      [=](const at::Tensor& x) { return medium(x).pow(2); },
      [=](const at::Tensor& x) { return medium(x) * 600; },
      [=](const at::Tensor& x) { return medium(x) * medium(x); },
      [=](const at::Tensor& x) { return torch::add(medium(x), medium(x), 600); },
      [=](const at::Tensor& x) { return torch::sub(medium(x), medium(x), -512); }};
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(i);
    const Body body = [&](const at::Tensor& x) { return bodies[i](x).to(torch::kFloat) * 0.5; };
    const auto graph = captured_body(body, bytes({2, 8}));
    EXPECT_SAYS(error_of([&] { lower(*graph); }), "expected results of at most 2^24");
  }
}

/// Two drawn ops with drawn numbers on integers of 8 and 16 bits: LibTorch's numbers, or refused by name.
TEST(InputTypes, DrawnOpsOfNarrowIntegersAreRightOrRefused) {
  std::mt19937 random(8);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  using Op = std::function<at::Tensor(const at::Tensor&, int64_t)>;
  const std::vector<Op> ops = {
      [](const at::Tensor& x, int64_t n) { return x + n; },
      [](const at::Tensor& x, int64_t n) { return n - x; },
      [](const at::Tensor& x, int64_t n) { return x * n; },
      [](const at::Tensor& x, int64_t n) { return torch::add(x, x.flip(1), n); },
      [](const at::Tensor& x, int64_t n) { return torch::sub(x, x.flip(1), n); },
      [](const at::Tensor& x, int64_t n) { return torch::rsub(x, n, 3); },
      [](const at::Tensor& x, int64_t n) { return x.floor_divide(n); },
      [](const at::Tensor& x, int64_t n) { return torch::div(x, n, "trunc"); },
      [](const at::Tensor& x, int64_t n) { return x.remainder(n); },
      [](const at::Tensor& x, int64_t n) { return x.fmod(n); },
      [](const at::Tensor& x, int64_t n) { return x.pow(std::abs(n) % 6); },
      [](const at::Tensor& x, int64_t n) { return x.clamp_min(n); },
      [](const at::Tensor& x, int64_t n) { return torch::clamp(x, n - 9, n); },
      [](const at::Tensor& x, int64_t n) { return x.bitwise_and(n); },
      [](const at::Tensor& x, int64_t n) { return x.bitwise_or(n); },
      [](const at::Tensor& x, int64_t n) { return x.bitwise_xor(n); },
      [](const at::Tensor& x, int64_t) { return x.bitwise_not(); },
      [](const at::Tensor& x, int64_t) { return x.abs(); },
      [](const at::Tensor& x, int64_t) { return -x; },
      [](const at::Tensor& x, int64_t) { return x.square(); },
      [](const at::Tensor& x, int64_t n) { return torch::addcmul(x, x, x, n); },
      [](const at::Tensor& x, int64_t n) { return x.masked_fill(x.lt(n), n); },
      [](const at::Tensor& x, int64_t n) { return torch::where(x.ge(n), x, torch::tensor(n)); },
      [](const at::Tensor& x, int64_t n) { return torch::maximum(x, torch::tensor(n)); },
      [](const at::Tensor& x, int64_t n) { return x.eq(n).to(x.scalar_type()) + x.gt(n); }};
  int right = 0, refused = 0;
  for (int net = 0; net < 150; ++net) {
    const at::ScalarType type =
        std::array{torch::kByte, torch::kChar, torch::kShort}[static_cast<size_t>(draw(0, 2))];
    std::vector<std::pair<size_t, int64_t>> steps;
    for (int i = 0; i < 2; ++i) {
      const int64_t wide = std::array{5, 130, 400, 70000}[static_cast<size_t>(draw(0, 3))];
      steps.emplace_back(draw(0, static_cast<int64_t>(ops.size()) - 1), draw(-wide, wide));
    }
    SCOPED_TRACE(net);
    const Body body = [&](const at::Tensor& x) {
      at::Tensor y = x.to(type);
      for (const auto& [op, number] : steps) y = ops[op](y, number);
      return y.to(torch::kFloat) * 0.5;
    };
    const at::Tensor x =
        type == torch::kShort
            ? torch::arange(-32768, 32768, 97).slice(0, 0, 672).view({16, 42}).to(torch::kInt)
            : all_bytes();
    std::shared_ptr<graph::GraphModule> graph;
    try {
      graph = captured_body(body, x.slice(0, 0, 2));
    } catch (const std::exception&) {  // LibTorch does not take each number
      continue;
    }
    runtime::Plan plan;
    try {
      plan = lower(*graph);
    } catch (const Error& error) {
      EXPECT_SAYS(error.what(), "node");
      ++refused;
      continue;
    }
    ++right;
    runtime::Engine engine(plan, {.threads = 1});
    EXPECT_TRUE(torch::equal(run_engine(engine, x), graph->forward(x)))
        << steps[0].first << " " << steps[0].second << " " << steps[1].first << " " << steps[1].second << "\n"
        << listing(plan);
  }
  EXPECT_GE(right, 60);
  EXPECT_LE(refused, 60);
}

/// Low bits of products of more bits are none of those that LibTorch has.
TEST(InputTypes, LargeProductsHaveNoLowBits) {
  for (const at::ScalarType type : {torch::kByte, torch::kShort}) {
    const auto graph = captured_body(
        [=](const at::Tensor& x) { return (x.to(torch::kInt) * 100003).to(type).to(torch::kFloat) * 0.5; },
        bytes({2, 8}));
    EXPECT_SAYS(error_of([&] { lower(*graph); }), "expected integers below 2^24, got a product");
  }
}

/// Chains of drawn ops on bytes, truth values and int32, whose numbers are whole: equal in each place.
TEST(InputTypes, DrawnChainsOfWholeNumbersAreExact) {
  torch::manual_seed(6);
  std::mt19937 random(6);
  const auto draw = [&](int kinds) { return static_cast<int>(random() % static_cast<unsigned>(kinds)); };
  int lowered = 0;
  for (int net = 0; net < 60; ++net) {
    SCOPED_TRACE(net);
    const at::ScalarType type =
        std::array{torch::kByte, torch::kBool, torch::kInt}[static_cast<size_t>(draw(3))];
    std::vector<std::pair<int, int>> steps;
    for (int i = 0; i < 4; ++i) steps.emplace_back(draw(9), 1 + draw(9));
    const Body body = [&](const at::Tensor& x) {
      at::Tensor y = x;
      for (const auto& [op, number] : steps) {
        switch (op) {
          case 0:
            y = y.scalar_type() == torch::kBool ? y.logical_not() : y + number;
            break;
          case 1:
            y = torch::where(y > number / 2, y, torch::ones_like(y));
            break;
          case 2:
            y = y.roll(number, 1);
            break;
          case 3:
            y = torch::maximum(y, y.flip(1));
            break;
          case 4:
            y = torch::cat({y, y.slice(1, 0, number)}, 1).slice(1, 0, 12);
            break;
          case 5:
            y = y.eq(number).logical_or(y.to(torch::kBool));
            break;
          case 6:
            y = y.unsqueeze(1).expand({-1, 2, -1}).transpose(1, 2).flatten(1).slice(1, 0, 12);
            break;
          case 7:
            y = y.scalar_type() == torch::kBool ? y : y - number;
            break;
          default:
            y = y.masked_fill(y.to(torch::kBool).logical_not(), 1);
        }
      }
      return y.to(torch::kFloat);
    };
    const auto made = [&](int64_t batch) {
      return torch::randint(type == torch::kBool ? 2 : 200, {batch, 12}).to(type);
    };
    const auto graph = captured_body(body, made(2));
    runtime::Plan plan;
    try {
      plan = lower(*graph);
    } catch (const Error& error) {  // some ops take ids as they are, and no others
      EXPECT_TRUE(type == torch::kInt && contains(error.what(), "the integers of")) << error.what();
      continue;
    }
    ++lowered;
    runtime::Engine engine(plan, {.threads = 1});
    for (const int64_t batch : {1, 4}) {
      const at::Tensor x = made(batch);
      EXPECT_TRUE(torch::equal(run_engine(engine, x), graph->forward(x))) << listing(plan);
    }
  }
  EXPECT_GE(lowered, 40);
}

/// Sums that wrap around and averages that are rounded in LibTorch: LibTorch runs them in pieces.
TEST(InputTypes, SumsAndAveragesInBytesAreLeftToLibTorch) {
  torch::manual_seed(8);
  namespace F = torch::nn::functional;
  using F::InterpolateFuncOptions;
  using Body = std::function<at::Tensor(const at::Tensor&)>;
  const at::Tensor weight = bytes({3, 4}), kernel = bytes({2, 3, 2, 2});
  const std::vector<std::pair<std::string, Body>> bodies = {
      {"bilinear",
       [](const at::Tensor& x) {
         return F::interpolate(x, InterpolateFuncOptions()
                                      .size(std::vector<int64_t>{5, 7})
                                      .mode(torch::kBilinear)
                                      .align_corners(false));
       }},
      {"bicubic",
       [](const at::Tensor& x) {
         return F::interpolate(x, InterpolateFuncOptions()
                                      .size(std::vector<int64_t>{5, 7})
                                      .mode(torch::kBicubic)
                                      .align_corners(false));
       }},
      {"conv2d", [=](const at::Tensor& x) { return at::conv2d(x, kernel); }},
      {"linear", [=](const at::Tensor& x) { return at::linear(x, weight); }},
      {"matmul", [](const at::Tensor& x) { return at::matmul(x, x.transpose(2, 3)); }},
      {"cumsum", [](const at::Tensor& x) { return at::cumsum(x, 1, at::kByte); }},
      {"prod", [](const at::Tensor& x) { return at::prod(x, 1); }}};
  for (const auto& [name, body] : bodies) {
    SCOPED_TRACE(name);
    const auto graph = captured_body(body, bytes({2, 3, 4, 4}));
    EXPECT_SAYS(error_of([&] { lower(*graph); }), "expected floats");
    PartitionedModel pieces = lower_partitioned(*graph);
    const at::Tensor x = bytes({3, 3, 4, 4});
    EXPECT_TRUE(torch::equal(pieces.run({x})[0], graph->forward(x)));
  }
}

/// Ids with offsets of their tables, masks of ones and zeros that are counted, ids and places in order.
TEST(InputTypes, IntegersAreCountedAndOrdered) {
  torch::manual_seed(8);
  using List = std::vector<at::Tensor>;
  const at::Tensor offsets = torch::tensor({0, 100, 200, 1000, 7, 9});
  const std::vector<std::function<at::Tensor(const List&)>> bodies = {
      [=](const List& x) { return x[0] + offsets; },
      [=](const List& x) { return (offsets + x[0]) * x[1]; },
      [](const List& x) { return x[0].cumsum(-1) * x[1]; },
      [](const List& x) { return x[1].sum(1, true) + x[0].amax(1, true); },
      [](const List& x) { return x[0].transpose(0, 1).sum(0); },
      [](const List& x) { return std::get<0>(x[0].sort(1)); },
      [](const List& x) { return std::get<0>(std::get<1>(x[0].topk(3, 1)).sort(1)); },
      [](const List& x) { return x[0].argmax(1) + x[0].new_zeros({x[0].size(0)}); },
      [](const List& x) {
        return x[0].to(torch::kFloat).new_full({x[0].size(0), 6}, 2.5) * x[0];
      }};
  for (const at::ScalarType type : {at::kLong, at::kInt}) {
    for (size_t i = 0; i < bodies.size(); ++i) {
      SCOPED_TRACE(i);
      const auto drawn = [&](int64_t n) {
        return List{torch::randperm(n * 6).view({n, 6}).to(type), torch::randint(0, 2, {n, 6}, type)};
      };
      const auto graph = captured_mixed(bodies[i], drawn(2));
      runtime::Engine engine(lower(*graph), {.threads = 2});
      for (const int64_t batch : {1, 3, 9}) {
        const List x = drawn(batch);
        const at::Tensor want = graph->forward_all(x)[0], got = run_engine_all(engine, x)[0];
        EXPECT_TRUE(got.to(want.scalar_type()).equal(want)) << got << want;
      }
    }
  }
  const auto graph = captured_mixed([](const List& x) { return x[0].cumsum(1) + x[1]; },
                                    {torch::ones({2, 6}, torch::kLong), torch::ones({2, 6}, torch::kLong)});
  runtime::Engine engine(lower(*graph), {.threads = 1});
  const at::Tensor large = torch::full({1, 6}, (1 << 24) + 1, torch::kLong);
  EXPECT_TRUE(contains(error_of([&] {
                         run_engine_all(engine, {large, torch::ones_like(large)});
                       }),
                       "which f32 holds"));
}

TEST(InputTypes, BytesThatGoThroughStayBytes) {
  const auto graph = captured_body([](const at::Tensor& x) { return x.flip(1); }, bytes({2, 7}));
  runtime::Engine engine(lower(*graph), {.threads = 1});
  EXPECT_EQ(engine.outputs()[0].type, runtime::DataType::u8);
  const at::Tensor x = bytes({3, 7});
  EXPECT_TRUE(torch::equal(run_engine(engine, x), graph->forward(x)));
}

TEST(InputTypes, MasksBehindTimeHaveTheirBatchInItsPlace) {
  const torch::NoGradGuard no_grad;
  Mixed model;
  model.body = [](const std::vector<at::Tensor>& x) {
    return x[0].masked_fill(x[1].unsqueeze(-1), 0).sum(0);
  };
  model.eval();
  const auto graph = ulp::capture(model, {torch::randn({5, 2, 3}), flags({5, 2})}, {.batch_dims = {1, 1}});
  graph->eval();
  runtime::Engine engine(lower(*graph), {.threads = 1});
  const at::Tensor x = torch::randn({5, 4, 3}), mask = flags({5, 4});
  EXPECT_LE(relative_error(run_engine_all(engine, {x, mask})[0], graph->forward_all({x, mask})[0]), 1e-6);
}

TEST(InputTypes, PiecesTakeThemToo) {
  const auto graph = captured_mixed(
      [](const std::vector<at::Tensor>& x) {
        const at::Tensor open = x[0].masked_fill(x[1], 0);
        return torch::nan_to_num(open.to(torch::kDouble).cumprod(1)).to(torch::kFloat).masked_fill(x[1], 1);
      },
      {torch::randn({2, 6}), flags({2, 6})});
  PartitionedModel pieces = lower_partitioned(*graph);
  const at::Tensor x = torch::randn({4, 6}), mask = flags({4, 6});
  EXPECT_LE(relative_error(pieces.run({x, mask})[0], graph->forward_all({x, mask})[0]), 1e-6);
}

}  // namespace
}  // namespace ulp::test
