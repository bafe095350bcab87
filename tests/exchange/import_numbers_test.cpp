// Arithmetic of ONNX files where types, broadcasting, zeros and old versions decide the result.
#include <torch/torch.h>

#include <limits>
#include <utility>
#include <vector>

#include "error_of.h"
#include "onnx_case.h"
#include "ulp/lower/partitioned_model.h"

namespace ulp::test {

namespace {

/// y = op(x, other) with another operand of the file.
at::Tensor with_other(const std::string& op, const at::Tensor& x, const at::Tensor& other,
                      const OnnxAttributes& attributes = {}, int64_t opset = 18) {
  OnnxCase file;
  file.input("x", x.sizes().vec(), x.scalar_type()).tensor("other", other);
  return file.node(op, {"x", "other"}, {"y"}, attributes).output("y").run({x}, opset);
}

at::Tensor alone(const std::string& op, const at::Tensor& x, const OnnxAttributes& attributes = {},
                 int64_t opset = 18) {
  OnnxCase file;
  file.input("x", x.sizes().vec(), x.scalar_type());
  return file.node(op, {"x"}, {"y"}, attributes).output("y").run({x}, opset);
}

}  // namespace

TEST(ImportNumbers, APowerHasTheTypeOfItsBase) {
  const at::Tensor x = torch::tensor({2, 3, -2});
  EXPECT_TRUE(torch::equal(with_other("Pow", torch::tensor({2, 3, 9}), torch::tensor(0.5F)),
                           torch::tensor({1, 1, 3})));
  EXPECT_TRUE(torch::equal(with_other("Pow", x, torch::tensor(2.0F)), torch::tensor({4, 9, 4})));
  EXPECT_TRUE(torch::equal(with_other("Pow", x, torch::tensor(-1)), torch::tensor({0, 0, 0})));
  EXPECT_TRUE(
      torch::equal(with_other("Pow", x, torch::tensor({0.5F, 1.5F, 2.0F})), torch::tensor({1, 5, 4})));
  EXPECT_TRUE(
      torch::equal(with_other("Pow", torch::tensor({4.0F}), torch::tensor({0.5F})), torch::tensor({2.0F})));
}

TEST(ImportNumbers, WholeNumbersAreDividedByInputs) {
  const at::Tensor a = torch::tensor({-7, 7, 7, -7}), b = torch::tensor({3, -3, 3, -3});
  const auto divided = [&](const std::string& op, const OnnxAttributes& attributes = {}) {
    OnnxCase file;
    file.input("a", {4}, at::kLong).input("b", {4}, at::kLong);
    return file.node(op, {"a", "b"}, {"y"}, attributes).output("y").run({a, b});
  };
  EXPECT_TRUE(torch::equal(divided("Div"), torch::tensor({-2, -2, 2, 2})));
  EXPECT_TRUE(torch::equal(divided("Mod"), torch::tensor({2, -2, 1, -1})));
  EXPECT_TRUE(torch::equal(divided("Mod", {{"fmod", 1}}), torch::tensor({-1, 1, 1, -1})));
  EXPECT_ERROR(with_other("Div", a, torch::tensor({1, 0, 1, 1})),
               "expected whole numbers to be divided by other");
}

TEST(ImportNumbers, BitsAreMoved) {
  const at::Tensor x = torch::tensor({16, 4, 255}, torch::kByte), by = torch::tensor({1, 2, 3}, torch::kByte);
  const auto moved = [&](const std::string& direction) {
    OnnxCase file;
    file.input("x", {3}, at::kByte).tensor("by", by);
    file.node("BitShift", {"x", "by"}, {"y"}, {{"direction", direction}}).output("y");
    return file.run({x});
  };
  EXPECT_TRUE(torch::equal(moved("LEFT"), torch::tensor({32, 16, 248}, torch::kByte)));
  EXPECT_TRUE(torch::equal(moved("RIGHT"), torch::tensor({8, 1, 31}, torch::kByte)));
  EXPECT_ERROR(moved("UP"), "expected direction LEFT or RIGHT, got 'UP'");
}

TEST(ImportNumbers, SlopesLieAlongTheLastDimensions) {
  const at::Tensor x = -torch::ones({1, 3, 3}), slopes = torch::tensor({1.0F, 2.0F, 3.0F});
  EXPECT_TRUE(torch::equal(with_other("PRelu", x, slopes), x * slopes));
  EXPECT_TRUE(torch::equal(with_other("PRelu", x, slopes.view({1, 3})), x * slopes));
  EXPECT_TRUE(torch::equal(with_other("PRelu", x, slopes.view({3, 1})), x * slopes.view({3, 1})));
  EXPECT_TRUE(torch::equal(with_other("PRelu", x, slopes, {}, 6), x * slopes.view({3, 1})));
  const at::Tensor image = -torch::ones({2, 3, 2, 2});
  EXPECT_TRUE(
      torch::equal(with_other("PRelu", image, slopes.view({3, 1, 1})), image * slopes.view({3, 1, 1})));
}

TEST(ImportNumbers, RowsOfZerosStayZerosWhenNormalised) {
  const at::Tensor x = torch::tensor({{0.0F, 0.0F, 0.0F}, {1.0F, -2.0F, 2.0F}});
  EXPECT_LT(share_off(alone("LpNormalization", x, {{"p", 2}}),
                      torch::tensor({{0.0F, 0.0F, 0.0F}, {1.0F, -2.0F, 2.0F}}) / 3),
            1e-6);
  EXPECT_LT(share_off(alone("LpNormalization", x, {{"p", 1}}),
                      torch::tensor({{0.0F, 0.0F, 0.0F}, {1.0F, -2.0F, 2.0F}}) / 5),
            1e-6);
}

TEST(ImportNumbers, ReductionsOfNothingComputeWhatStandsAround) {
  const at::Tensor x = torch::tensor({{1.0F, -2.0F}, {3.0F, 4.0F}});
  const auto of_nothing = [&](const std::string& op) { return alone(op, x, {{"noop_with_empty_axes", 1}}); };
  EXPECT_TRUE(torch::equal(of_nothing("ReduceSumSquare"), x * x));
  EXPECT_TRUE(torch::equal(of_nothing("ReduceL1"), x.abs()));
  EXPECT_LT(share_off(of_nothing("ReduceL2"), x.abs()), 1e-6);
  EXPECT_TRUE(torch::equal(of_nothing("ReduceSum"), x));
  EXPECT_TRUE(torch::equal(of_nothing("ReduceMax"), x));
}

TEST(ImportNumbers, ReductionsOfWholeNumbersStayWhole) {
  const at::Tensor x = torch::tensor({{1, -2}, {3, -9}}, torch::kInt);
  const std::vector<int64_t> all = {0, 1};
  EXPECT_EQ(alone("ReduceMean", x, {{"axes", all}}, 13).item<int>(), -1);
  EXPECT_EQ(alone("ReduceL2", x, {{"axes", all}}, 13).item<int>(), 9);
}

TEST(ImportNumbers, RangesCountInTheirType) {
  OnnxCase file;
  file.input("x", {1})
      .tensor("start", torch::tensor(0.0F))
      .tensor("limit", torch::tensor(0.6F))
      .tensor("delta", torch::tensor(0.2F));
  file.node("Range", {"start", "limit", "delta"}, {"r"}).node("Add", {"r", "x"}, {"y"}).output("y");
  // 0.6F / 0.2F is a little above 3.
  EXPECT_LT(share_off(file.run({torch::zeros({1})}), torch::tensor({0.0F, 0.2F, 0.4F, 0.6F})), 1e-6);
}

TEST(ImportNumbers, BoundsOfWholeNumbersAndOfInputs) {
  const at::Tensor codes = torch::tensor({-128, -5, 5, 127}, torch::kChar);
  OnnxCase narrow;
  narrow.input("x", {4}, at::kChar)
      .tensor("low", torch::tensor(-127, torch::kChar))
      .tensor("high", torch::tensor(6, torch::kChar));
  narrow.node("Clip", {"x", "low", "high"}, {"y"}).output("y");
  EXPECT_TRUE(torch::equal(narrow.run({codes}), torch::tensor({-127, -5, 5, 6}, torch::kChar)));
  OnnxCase given;
  given.input("x", {3}).input("high", {}).node("Clip", {"x", "", "high"}, {"y"}).output("y");
  EXPECT_TRUE(torch::equal(given.run({torch::tensor({1.0F, 5.0F, 9.0F}), torch::tensor(6.0F)}),
                           torch::tensor({1.0F, 5.0F, 6.0F})));
}

TEST(ImportNumbers, OneInfinityAlone) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const at::Tensor x = torch::tensor({kInfinity, -kInfinity, 1.0F});
  EXPECT_TRUE(torch::equal(alone("IsInf", x, {{"detect_negative", 0}}), torch::tensor({true, false, false})));
  EXPECT_TRUE(torch::equal(alone("IsInf", x, {{"detect_positive", 0}}), torch::tensor({false, true, false})));
}

TEST(ImportNumbers, OldVersionsBroadcastFromAnAxis) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({2, 3, 3, 3}), b = torch::randn({3});
  const OnnxAttributes along = {{"broadcast", 1}, {"axis", 1}};
  const at::Tensor channels = b.view({1, 3, 1, 1});
  EXPECT_TRUE(torch::equal(with_other("Add", x, b, along, 6), x + channels));
  EXPECT_TRUE(torch::equal(with_other("Mul", x, b, along, 6), x * channels));
  EXPECT_TRUE(torch::equal(with_other("Sub", x, b, along, 6), x - channels));
  EXPECT_TRUE(torch::equal(with_other("Div", x, b, along, 6), x / channels));
  EXPECT_TRUE(torch::equal(with_other("Add", x, b, {{"broadcast", 1}}, 6), x + b));
}

TEST(ImportNumbers, VersionsFrom6To28AreRead) {
  const at::Tensor x = torch::tensor({{-1.0F, 2.0F}});
  for (const int64_t opset : {6, 7, 13, 24, 25, 26, 27, 28})
    EXPECT_TRUE(torch::equal(alone("Relu", x, {}, opset), x.relu())) << opset;
  EXPECT_ERROR(alone("Relu", x, {}, 29), "expected the standard operators of version 6 to 28, got 29");
  EXPECT_ERROR(alone("Relu", x, {}, 5), "expected the standard operators of version 6 to 28, got 5");
  EXPECT_LT(share_off(alone("Swish", x, {{"alpha", 0.5F}}, 24), x * torch::sigmoid(x * 0.5)), 1e-6);
  EXPECT_ERROR(alone("FlexAttention", x, {}, 28), "(FlexAttention): no form of it is known");
}

TEST(ImportNumbers, StatisticsOfPlacesAreRefused) {
  OnnxCase file;
  file.input("x", {-1, 2, 2, 2});
  for (const char* name : {"a", "b", "c", "d"}) file.tensor(name, torch::ones({2, 2, 2}));
  file.node("BatchNormalization", {"x", "a", "b", "c", "d"}, {"y"}, {{"spatial", 0}}).output("y");
  EXPECT_ERROR(file.import(8), "expected statistics of channels, got attribute 'spatial' 0");
}

TEST(ImportNumbers, OnesAtTheFirstOfTheLargest) {
  EXPECT_TRUE(torch::equal(alone("Hardmax", torch::tensor({{3.0F, 3.0F, 1.0F}})),
                           torch::tensor({{1.0F, 0.0F, 0.0F}})));
}

TEST(ImportNumbers, NeighbouringChannelsAreNormalised) {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({2, 5, 2, 3});
  const at::Tensor right = torch::nn::functional::local_response_norm(
      x, torch::nn::functional::LocalResponseNormFuncOptions(3).alpha(0.5).beta(0.6).k(2));
  EXPECT_LT(share_off(alone("LRN", x, {{"size", 3}, {"alpha", 0.5F}, {"beta", 0.6F}, {"bias", 2.0F}}), right),
            1e-6);
}

TEST(ImportNumbers, ABoundThatIsNotANumberBoundsNothing) {
  // Results of ONNX Runtime 1.31.1.
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor x = torch::tensor({-3.0F, 0.0F, kNan, 2.0F, 7.0F});
  const auto clipped = [&](float low, float high, bool stored) {
    OnnxCase file;
    const at::Tensor a = torch::tensor(low), b = torch::tensor(high);
    file.input("x", {5});
    stored ? file.tensor("a", a).tensor("b", b) : file.input("a", {}).input("b", {});
    file.node("Clip", {"x", "a", "b"}, {"y"}).output("y");
    return stored ? file.run({x}) : file.run({x, a, b});
  };
  const auto same = [](const at::Tensor& a, const at::Tensor& b) {
    return torch::allclose(a, b, 0, 0, /*equal_nan=*/true);
  };
  for (const bool stored : {true, false}) {
    EXPECT_TRUE(same(clipped(kNan, 1, stored), torch::tensor({-3.0F, 0.0F, kNan, 1.0F, 1.0F})));
    EXPECT_TRUE(same(clipped(-1, kNan, stored), torch::tensor({-1.0F, 0.0F, kNan, 2.0F, 7.0F})));
    EXPECT_TRUE(same(clipped(kNan, kNan, stored), x));
    EXPECT_TRUE(same(clipped(3, 1, stored), torch::tensor({1.0F, 1.0F, kNan, 1.0F, 1.0F})));
  }
  EXPECT_ERROR(alone("Clip", x, {{"min", kNan}}, 6), "expected a number as attribute 'min', got NaN");
}

TEST(ImportNumbers, ExponentialsOfWholeNumbersAreRefused) {
  EXPECT_ERROR(alone("ReduceLogSumExp", torch::tensor({1, 2, 3}, torch::kInt)),
               "expected floats, since runtimes round the exponentials of whole numbers");
}

TEST(ImportNumbers, ExtremesOfNothing) {
  const auto extreme = [](const std::string& op, at::ScalarType type) {
    return alone(op, torch::zeros({2, 0, 3}, type), {{"axes", std::vector<int64_t>{1}}}, 13);
  };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(torch::equal(extreme("ReduceMax", at::kFloat), torch::full({2, 1, 3}, -kInf)));
  EXPECT_TRUE(torch::equal(extreme("ReduceMin", at::kFloat), torch::full({2, 1, 3}, kInf)));
  EXPECT_TRUE(torch::equal(extreme("ReduceMax", at::kInt),
                           torch::full({2, 1, 3}, std::numeric_limits<int32_t>::min(), torch::kInt)));
  EXPECT_TRUE(torch::equal(extreme("ReduceMin", at::kLong),
                           torch::full({2, 1, 3}, std::numeric_limits<int64_t>::max(), torch::kLong)));
  EXPECT_TRUE(torch::equal(extreme("ReduceMin", at::kByte), torch::full({2, 1, 3}, 255, torch::kByte)));
}

/// No input of the piece has the batch, which a constant of an engine follows.
TEST(ImportNumbers, ExtremesOfNothingRunInPieces) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const auto& [op, right] : {std::pair{"ReduceMax", -kInf}, {"ReduceMin", kInf}}) {
    OnnxCase file;
    file.input("x", {2, 0, 3}).node(op, {"x"}, {"y"}, {{"axes", std::vector<int64_t>{1}}});
    const auto module = file.output("y").import(13);
    const std::vector<at::Tensor> results = lower_partitioned(*module).run({torch::zeros({2, 0, 3})});
    EXPECT_TRUE(torch::equal(results.at(0), torch::full({2, 1, 3}, right))) << op;
  }
}

TEST(ImportNumbers, OperandsAlongAnAxisInEveryType) {
  for (const at::ScalarType type : {at::kFloat, at::kUInt32, at::kUInt64}) {
    const at::Tensor x = torch::arange(4, at::kLong).view({2, 2}), b = torch::tensor({10, 20}, at::kLong);
    const at::Tensor y = with_other("Add", x.to(type), b.to(type), {{"axis", 0}, {"broadcast", 1}}, 6);
    EXPECT_TRUE(torch::equal(y.to(at::kLong), x + b.view({2, 1}))) << type;
  }
}

}  // namespace ulp::test
