// Element types in which other runtimes do not compute an op: the file has it in a type that they know, or it
// is refused by name. Which types they know was tried with ONNX Runtime and LiteRT themselves.
#include <torch/torch.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "captured_function.h"
#include "error_of.h"
#include "onnx_reader.h"
#include "tflite_run.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/import_onnx.h"

namespace ulp::test {

namespace {

using TypedBody = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor truth_values() {
  return torch::tensor({1, 0, 0, 1, 1, 1, 1, 0}, torch::kInt).view({2, 4}).to(torch::kBool);
}
at::Tensor whole_numbers(at::ScalarType type) {
  return torch::tensor({1, 0, -3, 2, 7, -1, 5, 3}, torch::kInt).view({2, 4}).to(type);
}
/// Beyond the whole numbers that floats have.
at::Tensor long_numbers() {
  return torch::tensor(std::vector<int64_t>{(int64_t{1} << 53) + 1, -(int64_t{1} << 62) - 1, 16777217, 1})
      .view({2, 2});
}

ReadModel onnx_of(const TypedBody& body, const at::Tensor& x) {
  return read_onnx(exchange::export_onnx(*captured_function(body, x)));
}

/// What comes back of the file has the same elements, bit for bit, and the same type.
void expect_same_elements(const std::string& name, const TypedBody& body, const at::Tensor& x) {
  const torch::NoGradGuard no_grad;
  const auto module = captured_function(body, x);
  for (const int64_t opset : {17, 21}) {
    const auto back = exchange::import_onnx(exchange::export_onnx(*module, {.opset = opset}), "model.onnx");
    EXPECT_TRUE(torch::equal(module->forward(x), back->forward(x))) << name << ", opset " << opset << "\n"
                                                                    << module->forward(x) << "\n"
                                                                    << back->forward(x);
  }
}

std::set<int> codes_of(const TypedBody& body, const at::Tensor& x) {
  const auto module = captured_function(body, x);
  const auto file = read_tflite(exchange::export_tflite(*module, {.batch = x.size(0)}));
  std::set<int> codes;
  for (const TfliteOperator& one : file->operators) codes.insert(one.code);
  return codes;
}

}  // namespace

TEST(ExportTypes, OnnxCarriesTruthValuesAsWholeNumbers) {
  const std::vector<std::tuple<std::string, std::string, TypedBody>> bodies = {
      {"add", "Add", [](const at::Tensor& v) { return v + v; }},
      {"mul", "Mul", [](const at::Tensor& v) { return v * v; }},
      {"sign", "Sign", [](const at::Tensor& v) { return at::sign(v); }},
      {"sort", "TopK", [](const at::Tensor& v) { return std::get<0>(at::sort(v, 1, true)); }},
      {"argsort", "TopK", [](const at::Tensor& v) { return at::argsort(v, /*stable=*/true, 1, false); }},
      {"masked_fill", "Where", [](const at::Tensor& v) { return v.masked_fill(v, false); }},
      {"where", "Where", [](const at::Tensor& v) { return at::where(v, v, v * v); }},
      {"amax", "ReduceMax", [](const at::Tensor& v) { return at::amax(v, {1}); }},
      {"amin", "ReduceMin", [](const at::Tensor& v) { return at::amin(v, {1}); }},
      {"max", "ReduceMax", [](const at::Tensor& v) { return std::get<0>(at::max(v, 1)); }}};
  constexpr int64_t kInt32 = 6;
  const at::Tensor x = truth_values();
  for (const auto& [name, op, body] : bodies) {
    expect_same_elements(name, body, x);
    const ReadModel file = onnx_of(body, x);
    for (const ReadNode& node : file.of(op)) {
      const size_t data = op == "Where" ? 1 : 0;  // behind the condition
      const ReadNode* made = file.maker(node.inputs.at(data));
      const auto stored = file.initializers.find(node.inputs.at(data));
      const int64_t type = made != nullptr && made->op == "Cast" ? made->attributes.at("to").i
                           : stored != file.initializers.end()   ? stored->second.type
                                                                 : -1;
      EXPECT_EQ(type, kInt32) << name;
    }
    ASSERT_FALSE(file.of(op).empty()) << name;
  }
}

TEST(ExportTypes, OnnxHasOperatorsOfWholeNumbersThatRuntimesKnow) {
  const TypedBody relu = [](const at::Tensor& v) { return at::relu(v); };
  const TypedBody linear = [](const at::Tensor& v) {
    return at::linear(v, torch::ones({3, 4}, v.options()), torch::ones({3}, v.options()));
  };
  for (const at::ScalarType type : {at::kInt, at::kLong}) {
    const at::Tensor x = whole_numbers(type);
    EXPECT_TRUE(onnx_of(relu, x).of("Relu").empty());
    EXPECT_TRUE(onnx_of(linear, x).of("Gemm").empty());
    expect_same_elements("relu", relu, x);
    expect_same_elements("linear", linear, x);
  }
}

TEST(ExportTypes, OneSidedClampsLetInfinitiesPass) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const at::Tensor x = torch::tensor({-kInfinity, kInfinity, 1.F, -1.F}).view({2, 2});
  const std::vector<std::pair<TypedBody, size_t>> bodies = {
      {[](const at::Tensor& v) { return at::clamp_min(v, -0.5); }, 2},
      {[](const at::Tensor& v) { return at::clamp_max(v, 0.5); }, 1}};
  for (const auto& [body, open] : bodies) {
    const ReadModel file = onnx_of(body, x);
    const std::vector<ReadNode> clips = file.of("Clip");
    ASSERT_EQ(clips.size(), 1U);
    const float bound = file.initializers.at(clips[0].inputs.at(open)).as<float>().at(0);
    EXPECT_EQ(bound, open == 2 ? kInfinity : -kInfinity);
    expect_same_elements("clamp", body, x);
  }
}

TEST(ExportTypes, InfiniteBoundsThatNoNumberIsWithinStay) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const at::Tensor x = torch::tensor({-std::numeric_limits<float>::infinity(), 2.F, 1.F, -1.F}).view({2, 2});
  expect_same_elements(
      "above", [=](const at::Tensor& v) { return at::clamp_min(v, kInfinity); }, x);
  expect_same_elements(
      "below", [=](const at::Tensor& v) { return at::clamp_max(v, -kInfinity); }, x);
}

/// Carried in int32, elements of 8 bits lie beside the number that LibTorch makes of -1.
TEST(ExportTypes, NumbersBesideCarriedElementsWrapAsThey) {
  const std::vector<std::pair<std::string, TypedBody>> bodies = {
      {"gt", [](const at::Tensor& v) { return at::gt(v, -1); }},
      {"clamp_min", [](const at::Tensor& v) { return at::clamp_min(v, -1); }},
      {"where", [](const at::Tensor& v) { return at::where(v > 3, v, -1); }}};
  for (const auto& [name, body] : bodies) {
    for (const auto type : {at::kByte, at::kChar, at::kShort})
      expect_same_elements(name, body, whole_numbers(type));
  }
}

TEST(ExportTypes, TheLargerOfTwoIsNoReduction) {
  for (const auto type : {at::kFloat, at::kInt, at::kLong}) {
    const at::Tensor x = whole_numbers(type);
    const TypedBody larger = [](const at::Tensor&v) { return at::max(v, v.flip({1})); },
                    smaller = [](const at::Tensor&v) { return at::min(v, -v); };
    expect_same_elements("max", larger, x);
    expect_same_elements("min", smaller, x);
    for (const TypedBody& body : {larger, smaller}) {
      const auto file = read_tflite(exchange::export_tflite(*captured_function(body, x), {.batch = 2}));
      EXPECT_TRUE(torch::equal(TfliteRun(*file).run({x}).at(0), body(x)));
    }
  }
}

TEST(ExportTypes, NumbersBesideWholeNumbersHaveAllTheirBits) {
  constexpr int64_t kOdd = (int64_t{1} << 53) + 1;
  const std::vector<std::pair<std::string, TypedBody>> bodies = {
      {"clamp", [=](const at::Tensor& v) { return at::clamp(v, -kOdd, kOdd); }},
      {"clamp_min", [=](const at::Tensor& v) { return at::clamp_min(v, 16777217); }},
      {"clamp to the largest",
       [=](const at::Tensor& v) { return at::clamp(v, 0, std::numeric_limits<int64_t>::max()); }},
      {"add", [=](const at::Tensor& v) { return v + kOdd; }},
      {"add scaled", [=](const at::Tensor& v) { return at::add(v, v, kOdd); }},
      {"equal", [=](const at::Tensor& v) { return v == kOdd; }},
      {"masked_fill", [=](const at::Tensor& v) { return v.masked_fill(v > 1, kOdd); }},
      {"of two types", [](const at::Tensor& v) { return v.to(torch::kInt) == v; }}};
  const at::Tensor x = long_numbers();
  for (const auto& [name, body] : bodies) expect_same_elements(name, body, x);
  const auto file =
      read_tflite(exchange::export_tflite(*captured_function(bodies[0].second, x), {.batch = x.size(0)}));
  std::multiset<int64_t> bounds;
  for (const TfliteTensor& tensor : file->tensors) {
    if (tensor.type == kInt64Type && !tensor.bytes.empty()) bounds.insert(tensor.as<int64_t>().at(0));
  }
  EXPECT_EQ(bounds, (std::multiset<int64_t>{-kOdd, kOdd}));
}

TEST(ExportTypes, NumbersOfTwoTypesAreComparedInTheirCommonOne) {
  const at::Tensor x = torch::tensor({1.0001F, 0.5F, 0.9999F, 0.25F}).view({2, 2});
  const std::vector<std::pair<std::string, TypedBody>> bodies = {
      {"half < float", [](const at::Tensor& v) { return at::lt(v.to(torch::kHalf), v); }},
      {"float > half", [](const at::Tensor& v) { return at::gt(v, v.to(torch::kHalf)); }},
      {"half < float without dimensions",
       [](const at::Tensor& v) { return at::lt(v.to(torch::kHalf), at::amax(v)); }}};
  for (const auto& [name, body] : bodies) expect_same_elements(name, body, x);
  const auto casts = [&](size_t body) {
    std::vector<int64_t> types;
    for (const ReadNode& node : onnx_of(bodies[body].second, x).of("Cast"))
      types.push_back(node.attributes.at("to").i);
    return types;
  };
  constexpr int64_t kFloat32 = 1, kFloat16 = 10;
  EXPECT_EQ(casts(0), (std::vector<int64_t>{kFloat16, kFloat32}));
  EXPECT_EQ(casts(2), (std::vector<int64_t>{kFloat16, kFloat16}));
}

TEST(ExportTypes, ASquareRootIsNoPower) {
  const at::Tensor x = torch::tensor({-std::numeric_limits<float>::infinity(), 2.F}).view({2, 1});
  const TypedBody root = [](const at::Tensor& v) { return at::pow(v, 0.5); };
  EXPECT_TRUE(onnx_of(root, x).of("Pow").empty());
  constexpr int kSqrt = 75, kRsqrt = 76;
  EXPECT_EQ(codes_of(root, x), std::set<int>{kSqrt});
  const TypedBody inverse = [](const at::Tensor& v) { return at::pow(v, -0.5); };
  const ReadModel file = onnx_of(inverse, x);
  EXPECT_TRUE(file.of("Pow").empty());
  EXPECT_EQ(file.of("Sqrt").size(), 1U);
  EXPECT_EQ(file.of("Reciprocal").size(), 1U);
  EXPECT_EQ(codes_of(inverse, x), std::set<int>{kRsqrt});
}

TEST(ExportTypes, OnnxCarriesSmallWholeNumbersInLargerOnes) {
  const std::vector<std::tuple<std::string, std::string, TypedBody>> bodies = {
      {"matmul", "MatMul", [](const at::Tensor& v) { return at::matmul(v, v.t()); }},
      {"maximum", "Max", [](const at::Tensor& v) { return at::maximum(v, v * v); }},
      {"amin", "ReduceMin", [](const at::Tensor& v) { return at::amin(v, {1}); }},
      {"where", "Where", [](const at::Tensor& v) { return at::where(v > 0, v, v * 2); }},
      {"pad", "Pad",
       [](const at::Tensor& v) {
         return at::constant_pad_nd(v, {1, 1}, 3);
       }},
      {"tril", "Trilu", [](const at::Tensor& v) { return at::tril(v); }}};
  constexpr int64_t kInt32 = 6;
  for (const auto& [name, op, body] : bodies) {
    const at::Tensor x = whole_numbers(at::kShort) * 30000;
    expect_same_elements(name, body, x);
    const ReadModel file = onnx_of(body, x);
    ASSERT_FALSE(file.of(op).empty()) << name;
    const ReadNode* made = file.maker(file.of(op)[0].inputs.at(op == "Where" ? 1 : 0));
    ASSERT_NE(made, nullptr) << name;
    EXPECT_EQ(made->op, "Cast") << name;
    EXPECT_EQ(made->attributes.at("to").i, kInt32) << name;
  }
}

TEST(ExportTypes, WholeQuotientsAndPowersWrapAsLibTorchsDo) {
  const at::Tensor x = torch::tensor({1, 0, -3, 2, 100, -128, 5, 127}, torch::kInt).view({2, 4});
  for (const at::ScalarType type : {at::kChar, at::kShort, at::kInt, at::kLong}) {
    const at::Tensor numbers = type == at::kShort ? x.to(type) * 256 : x.to(type);
    expect_same_elements(
        "floor", [](const at::Tensor& v) { return at::div(v, 3, "floor"); }, numbers);
    expect_same_elements(
        "floor of a negative one", [](const at::Tensor& v) { return at::div(v, -7, "floor"); }, numbers);
    for (const int64_t power : {0, 1, 2, 7})
      expect_same_elements(
          "power", [=](const at::Tensor& v) { return at::pow(v, power); }, numbers);
  }
  EXPECT_ERROR(exchange::export_onnx(*captured_function(
                   [](const at::Tensor& v) { return at::pow(v, v.abs()); }, whole_numbers(at::kChar))),
               "expected floats, int32 or int64");
}

TEST(ExportTypes, WhatOnnxRuntimeHasOfSmallerFloatsAloneIsRefused) {
  const at::Tensor x = torch::rand({2, 3}, torch::kDouble);
  for (const TypedBody& body : std::vector<TypedBody>{[](const at::Tensor& v) { return at::erf(v); },
                                                      [](const at::Tensor& v) { return at::gelu(v); },
                                                      [](const at::Tensor& v) { return at::sinh(v); }})
    EXPECT_ERROR(exchange::export_onnx(*captured_function(body, x)),
                 "in which other runtimes compute it, got Double");
}

TEST(ExportTypes, ShrinksKeepWhatIsNoNumber) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x =
        torch::tensor({0.1, -3.3, 0.45, 7., -0.45, -0.2}, torch::kDouble).to(type).view({2, 3});
    const TypedBody soft = [](const at::Tensor&v) { return at::softshrink(v, 0.4); },
                    hard = [](const at::Tensor&v) { return at::hardshrink(v, 0.4); };
    expect_same_elements("softshrink", soft, x);
    expect_same_elements("hardshrink", hard, x);
    EXPECT_TRUE(onnx_of(soft, x).of("Shrink").empty());  // which makes 0 of it
    EXPECT_TRUE(onnx_of(hard, x).of("Shrink").empty());
  }
}

/// LiteRT stops at powers below 0.
TEST(ExportTypes, PowersOfComputedWholeNumbersHaveAnySign) {
  const TypedBody power = [](const at::Tensor& v) { return at::pow(v, v.flip({1})); };
  const at::Tensor x = whole_numbers(at::kInt);
  const auto file = read_tflite(exchange::export_tflite(*captured_function(power, x), {.batch = 2}));
  EXPECT_TRUE(torch::equal(TfliteRun(*file).run({x}).at(0), power(x)));
}

TEST(ExportTypes, LiteRtGetsOperatorsOfTypesThatItKnows) {
  constexpr int kCast = 53, kMaximum = 55, kMinimum = 57, kNeg = 59, kLogistic = 14, kNot = 87,
                kReduceMax = 82;
  const auto whole = [](const TypedBody& body) { return codes_of(body, whole_numbers(at::kLong)); };
  const auto truth = [](const TypedBody& body) { return codes_of(body, truth_values()); };
  EXPECT_EQ(whole([](const at::Tensor& v) { return at::abs(v); }), (std::set<int>{kNeg, kMaximum}));
  EXPECT_EQ(whole([](const at::Tensor& v) { return at::sign(v); }), (std::set<int>{kMaximum, kMinimum}));
  EXPECT_EQ(whole([](const at::Tensor& v) { return at::relu(v); }), std::set<int>{kMaximum});
  EXPECT_EQ(whole([](const at::Tensor& v) { return at::clamp(v, -1, 5); }),
            (std::set<int>{kMaximum, kMinimum}));
  EXPECT_EQ(whole([](const at::Tensor& v) { return at::sigmoid(v); }), (std::set<int>{kCast, kLogistic}));
  EXPECT_EQ(whole([](const at::Tensor& v) { return at::floor(v) + v; }), std::set<int>{kAdd});
  EXPECT_EQ(whole([](const at::Tensor& v) { return at::logical_not(v); }), (std::set<int>{kCast, kNot}));
  EXPECT_EQ(truth([](const at::Tensor& v) { return v + v; }), (std::set<int>{kCast, kAdd}));
  EXPECT_EQ(truth([](const at::Tensor& v) { return at::amax(v, {1}); }), (std::set<int>{kCast, kReduceMax}));
  const at::Tensor x = whole_numbers(at::kLong);
  const auto padded = read_tflite(exchange::export_tflite(*captured_function(
                                                              [](const at::Tensor& v) {
                                                                return at::constant_pad_nd(v, {1, 1}, 3);
                                                              },
                                                              x),
                                                          {.batch = 2}));
  EXPECT_EQ(padded->input(padded->of(kPadV2).at(0), 2).type, kInt64Type);
  const auto places = captured_function([](const at::Tensor& v) { return at::argmax(v, 1); }, x);
  EXPECT_ERROR(exchange::export_tflite(*places, {.batch = 2}),
               "expected elements of Int, Float, in which other runtimes compute it, got Long");
}

}  // namespace ulp::test
