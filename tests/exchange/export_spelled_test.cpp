// Calls that ONNX has in other words: what the file computes, read back, beside the graph. ONNX Runtime's
// word on them is in bench/notes/conformance.md.
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "captured_function.h"
#include "error_of.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/import_onnx.h"

namespace ulp::test {

namespace {

constexpr double kNearlyEqual = 1e-6;  ///< a share of the largest number

using Body = std::function<at::Tensor(const at::Tensor&)>;

/// Of opset 17, which has reductions' axes as attributes, and of the newest; at the captured batch and at
/// another one.
void expect_same_numbers(const std::string& name, const Body& body, const at::Tensor& x) {
  const torch::NoGradGuard no_grad;
  const auto module = captured_function(body, x);
  for (const int64_t opset : {17, 21}) {
    const auto back = exchange::import_onnx(exchange::export_onnx(*module, {.opset = opset}), "model.onnx");
    for (const at::Tensor& given : {x, torch::cat({x, x.slice(0, 0, 1)})}) {
      const at::Tensor right = module->forward(given), ours = back->forward(given);
      EXPECT_EQ(ours.scalar_type(), right.scalar_type()) << name;
      EXPECT_LE(relative_difference(right, ours), kNearlyEqual) << name << ", opset " << opset;
    }
  }
}

/// Of opset 17 and of the newest: bit for bit but for roundings, NaN and infinities where the graph has them.
void expect_same_limits(const std::string& name, const Body& body, const at::Tensor& x) {
  const torch::NoGradGuard no_grad;
  const auto module = captured_function(body, x);
  const at::Tensor right = module->forward(x);
  for (const int64_t opset : {17, 21}) {
    const auto back = exchange::import_onnx(exchange::export_onnx(*module, {.opset = opset}), "model.onnx");
    const at::Tensor ours = back->forward(x);
    EXPECT_EQ(ours.scalar_type(), right.scalar_type()) << name;
    EXPECT_TRUE(torch::allclose(ours, right, kNearlyEqual, 0, /*equal_nan=*/true))
        << name << ", opset " << opset << '\n'
        << ours << '\n'
        << right;
  }
}

}  // namespace

TEST(ExportSpelled, FunctionsOfOneTensor) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({3, 4, 6}) * 2;
  const std::vector<std::pair<std::string, Body>> bodies = {
      {"selu", [](const at::Tensor& v) { return at::selu(v); }},
      {"celu", [](const at::Tensor& v) { return at::celu(v, 0.7); }},
      {"softshrink", [](const at::Tensor& v) { return at::softshrink(v, 0.4); }},
      {"hardshrink", [](const at::Tensor& v) { return at::hardshrink(v, 0.4); }},
      {"threshold", [](const at::Tensor& v) { return at::threshold(v, 0.1, 20); }},
      {"glu", [](const at::Tensor& v) { return at::glu(v, 1); }},
      {"softplus", [](const at::Tensor& v) { return at::softplus(v, 2, 1); }},
      {"log1p", [](const at::Tensor& v) { return at::log1p(v.abs()); }},
      {"expm1", [](const at::Tensor& v) { return at::expm1(v); }},
      {"log2", [](const at::Tensor& v) { return at::log2(v.abs() + 1); }},
      {"log10", [](const at::Tensor& v) { return at::log10(v.abs() + 1); }},
      {"exp2", [](const at::Tensor& v) { return at::exp2(v); }},
      {"erfc", [](const at::Tensor& v) { return at::erfc(v); }},
      {"trunc", [](const at::Tensor& v) { return at::trunc(v); }},
      {"frac", [](const at::Tensor& v) { return at::frac(v); }},
      {"tan", [](const at::Tensor& v) { return at::tan(v * 0.1); }},
      {"asinh", [](const at::Tensor& v) { return at::asinh(v); }},
      {"isinf", [](const at::Tensor& v) { return at::isinf(v.round().reciprocal()).to(torch::kFloat); }},
      {"isnan", [](const at::Tensor& v) { return at::isnan(v.log()).to(torch::kFloat); }},
      {"remainder", [](const at::Tensor& v) { return at::remainder(v, -0.7); }},
      {"fmod", [](const at::Tensor& v) { return at::fmod(v, 0.7); }},
      {"div floor", [](const at::Tensor& v) { return at::div(v, 0.7, "floor"); }},
      {"div trunc", [](const at::Tensor& v) { return at::div(v, 0.7, "trunc"); }},
      {"div of integers",
       [](const at::Tensor& v) { return at::div((v * 5).to(torch::kInt), 2, "floor").to(torch::kFloat); }},
      {"pairs",
       [](const at::Tensor& v) { return at::remainder(v, v.abs() + 0.5) + at::fmod(v, v.abs() + 0.5); }},
      {"floor of a pair", [](const at::Tensor& v) { return at::div(v * 9, v.flip({1}), "floor"); }},
      {"logaddexp", [](const at::Tensor& v) { return at::logaddexp(v, v * 0.5); }},
      {"addcmul", [](const at::Tensor& v) { return at::addcmul(v, v, v, 0.5); }},
      {"addcdiv", [](const at::Tensor& v) { return at::addcdiv(v, v, v.abs() + 1, 0.5); }},
      {"lerp", [](const at::Tensor& v) { return at::lerp(v, v * 2, 0.3) + at::lerp(v, v * 2, 0.8); }},
      {"truth",
       [](const at::Tensor&
              v) { return (((v > -1) & (v < 1)) | ~(v > 0) | ((v > 0) ^ (v > 1))).to(torch::kFloat); }},
      {"tile", [](const at::Tensor& v) { return at::tile(v, {2}); }},
      {"atan2", [](const at::Tensor& v) { return at::atan2(v, v.flip({1})); }},
      {"logit", [](const at::Tensor& v) { return at::logit(at::sigmoid(v), 1e-6); }},
      {"xlogy", [](const at::Tensor& v) { return at::xlogy(v.relu(), v.abs()) + at::xlogy(v, 2.0); }},
      {"sinc", [](const at::Tensor& v) { return at::sinc(v); }},
      {"nan_to_num", [](const at::Tensor& v) { return at::nan_to_num(v.log(), 0.5); }},
      {"mT", [](const at::Tensor& v) { return v.mT() * 2; }},
      {"cumprod", [](const at::Tensor& v) { return at::cumprod(v, 2); }},
      {"bilinear", [w = torch::arange(5 * 6 * 3, torch::kFloat).view({5, 6, 3}).sin(), b = torch::rand({5})](
                       const at::Tensor& v) { return at::bilinear(v, v.slice(2, 0, 3), w, b); }},
      {"rms_norm", [](const at::Tensor& v) { return at::rms_norm(v, {6}, {}, 1e-5); }}};
  for (const auto& [name, body] : bodies) expect_same_numbers(name, body, x);
}

TEST(ExportSpelled, AreExactWhereNumbersAreSmallOrInfinite) {
  const at::Tensor x = torch::tensor({1e-6F, -1e-6F, 1e-20F, 0.0F, 90.0F, -90.0F}).view({2, 3});
  for (const auto& [name, body] : std::vector<std::pair<std::string, Body>>{
           {"log1p", [](const at::Tensor& v) { return at::log1p(v.clamp_min(-0.5)); }},
           {"expm1", [](const at::Tensor& v) { return at::expm1(v); }}}) {
    const torch::NoGradGuard no_grad;
    const auto module = captured_function(body, x);
    const at::Tensor ours = exchange::import_onnx(exchange::export_onnx(*module), "model.onnx")->forward(x);
    EXPECT_TRUE(torch::allclose(ours, body(x), 1e-6, 0, /*equal_nan=*/true)) << name << ours;
  }
}

TEST(ExportSpelled, NormsOfAnyOrder) {
  torch::manual_seed(3);
  at::Tensor x = torch::randn({3, 4, 6}) * 2;
  x.select(2, 1).zero_();
  x.select(1, 2).zero_();
  for (const double order : {3.0, 0.0, 0.5, 2.5, -1.0, 1.0, 2.0}) {
    const std::string name = "order " + std::to_string(order);
    for (const bool keep : {false, true}) {
      expect_same_limits(
          name, [=](const at::Tensor& v) { return at::linalg_vector_norm(v, order, {-2}, keep); }, x);
      expect_same_limits(
          name + " of two",
          [=](const at::Tensor& v) {
            return at::linalg_vector_norm(v * 1.5, order, {1, -1}, keep);
          },
          x);
    }
  }
  namespace F = torch::nn::functional;
  expect_same_numbers(
      "normalize", [](const at::Tensor& v) { return F::normalize(v, F::NormalizeFuncOptions().p(3).dim(1)); },
      x);
  expect_same_numbers(
      "in double", [](const at::Tensor& v) { return at::linalg_vector_norm(v, 3, {1}, true, at::kDouble); },
      x);
  // Cubes of 60 are beyond a half; the norm is not.
  const torch::NoGradGuard no_grad;
  const at::Tensor large = torch::full({2, 4}, 60.0F);
  const auto module =
      captured_function([](const at::Tensor& v) { return at::linalg_vector_norm(v, 3, {1}); }, large);
  const auto half = exchange::import_onnx(exchange::export_onnx(*module, {.fp16 = true}), "half.onnx");
  EXPECT_TRUE(torch::allclose(half->forward(large), module->forward(large), 1e-3, 0)) << half->forward(large);
}

TEST(ExportSpelled, AnglesOfZerosAndInfinities) {
  constexpr float kMany = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor ends = torch::tensor({0.0F, -0.0F, kMany, -kMany, kNan, 1.0F, -1.0F, 1e-30F, -1e30F});
  const at::Tensor x = ends.view({-1, 1}).expand({9, 9}).contiguous();
  const auto signed_zeros = [](const at::Tensor& angle) { return at::cat({angle, at::reciprocal(angle)}); };
  expect_same_limits(
      "atan2", [=](const at::Tensor& v) { return signed_zeros(at::atan2(v, ends)); }, x);
  expect_same_limits(
      "atan2 the other way round", [=](const at::Tensor& v) { return signed_zeros(at::atan2(ends, v)); }, x);
  expect_same_limits(
      "xlogy", [=](const at::Tensor& v) { return at::xlogy(v, ends); }, x);
  for (const double number : {0.0, 2.0, -1.0, static_cast<double>(kMany), static_cast<double>(kNan)}) {
    expect_same_limits(
        "xlogy of a number", [=](const at::Tensor& v) { return at::xlogy(number, v); }, x);
    expect_same_limits(
        "xlogy by a number", [=](const at::Tensor& v) { return at::xlogy(v, number); }, x);
  }
  expect_same_limits(
      "sinc", [](const at::Tensor& v) { return at::sinc(v); }, x);
  expect_same_limits(
      "logit", [](const at::Tensor& v) { return at::logit(v) + at::logit(v, 0.0); }, x);
  expect_same_limits(
      "nan_to_num",
      [](const at::Tensor& v) {
        return at::nan_to_num(v) + at::nan_to_num(v, 1, 2) + at::nan_to_num(v, 1, {}, 3);
      },
      x);
  const at::Tensor steep = torch::tensor({1e30F, 1e30F, 1e-30F, 1e-30F, 0.0F, kMany}).view({1, 6});
  expect_same_limits(
      "cumprod in double", [](const at::Tensor& v) { return at::cumprod(v, 1); }, steep);
}

TEST(ExportSpelled, AChainOfTooManyProductsIsRefused) {
  const auto module =
      captured_function([](const at::Tensor& v) { return at::cumprod(v, 1); }, torch::rand({2, 1025}));
  EXPECT_ERROR(exchange::export_onnx(*module), "expected at most 1024 elements in a row, got 1025");
}

TEST(ExportSpelled, WholeNumbersAsClassesAndIndices) {
  const at::Tensor ids = torch::tensor({1, 0, 3, 2, 4, 1}, torch::kLong).view({2, 3});
  const at::Tensor table = torch::arange(10, torch::kFloat).view({5, 2});
  for (const auto& [name, body] : std::vector<std::pair<std::string, Body>>{
           {"one_hot", [](const at::Tensor& v) { return at::one_hot(v, 5); }},
           {"cumprod", [](const at::Tensor& v) { return at::cumprod(v - 2, 1); }},
           {"from the end", [=](const at::Tensor& v) { return at::index(table, {v - 5}); }},
           {"atan2", [](const at::Tensor& v) { return at::atan2(v, v - 2); }}})
    expect_same_numbers(name, body, ids);
}

TEST(ExportSpelled, ReductionsAndOrders) {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({3, 4, 6});
  constexpr double kMany = std::numeric_limits<double>::infinity();
  for (const bool keep : {false, true}) {
    const std::vector<std::pair<std::string, Body>> bodies = {
        {"norm 2",
         [=](const at::Tensor& v) {
           return at::linalg_vector_norm(v, 2, at::IntArrayRef{1, -1}, keep);
         }},
        {"norm 1",
         [=](const at::Tensor& v) { return at::linalg_vector_norm(v, 1, at::IntArrayRef{-1}, keep); }},
        {"norm inf",
         [=](const at::Tensor& v) { return at::linalg_vector_norm(v, kMany, at::IntArrayRef{1}, keep); }},
        {"var",
         [=](const at::Tensor& v) {
           return at::var(v, at::IntArrayRef{1, 2}, 1, keep);
         }},
        {"std", [=](const at::Tensor& v) { return at::std(v, at::IntArrayRef{-1}, 0, keep); }},
        {"logsumexp", [=](const at::Tensor& v) { return at::logsumexp(v * 100, {1}, keep); }},
        {"prod", [=](const at::Tensor& v) { return at::prod(v, 1, keep); }},
        {"any", [=](const at::Tensor& v) { return at::any(v > 1, -1, keep).to(torch::kFloat); }},
        {"all", [=](const at::Tensor& v) { return at::all(v > -1, -1, keep).to(torch::kFloat); }}};
    for (const auto& [name, body] : bodies) expect_same_numbers(name, body, x);
  }
  expect_same_numbers(
      "sort", [](const at::Tensor& v) { return std::get<0>(at::sort(v, 1, true)); }, x);
  expect_same_numbers(
      "argsort", [](const at::Tensor& v) { return at::argsort(v, -1, false); }, x);
  expect_same_numbers(
      "cumsum", [](const at::Tensor& v) { return at::cumsum(v, 1); }, x);
  const Body scattered = [](const at::Tensor& v) {
    const at::Tensor places = at::argsort(v, 1, false);
    return at::scatter(v, 1, places, 2.0) + at::scatter_add(v, 1, places, v * 3);
  };
  expect_same_numbers("scatter", scattered, x);
}

TEST(ExportSpelled, LogSumExpOfInfiniteRows) {
  constexpr float kMany = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor x = torch::tensor({-kMany, -kMany, -kMany, kMany, 1.0F, 2.0F, kMany, kMany, -kMany, -kMany,
                                      3.0F, 300.0F, kNan, kMany, 1.0F, 90.0F, 90.0F, 90.0F})
                           .view({6, 3});
  for (const bool keep : {false, true}) {
    expect_same_limits(
        "rows", [=](const at::Tensor& v) { return at::logsumexp(v, {1}, keep); }, x);
    expect_same_limits(
        "two dimensions",
        [=](const at::Tensor& v) {
          return at::logsumexp(v.unsqueeze(2), {1, -1}, keep);
        },
        x);
  }
  const at::Tensor integers = torch::tensor({1, 2, 3, 100, 200, 300}, torch::kLong).view({2, 3});
  expect_same_limits(
      "integers", [](const at::Tensor& v) { return at::logsumexp(v, {-1}, true); }, integers);
}

TEST(ExportSpelled, FunctionsOfIntegers) {
  const at::Tensor x = torch::tensor({1, 0, -3, 2, 7, -1}, torch::kLong).view({2, 3});
  const std::vector<std::pair<std::string, Body>> bodies = {
      {"exp", [](const at::Tensor& v) { return at::exp(v); }},
      {"sigmoid", [](const at::Tensor& v) { return at::sigmoid(v); }},
      {"erf", [](const at::Tensor& v) { return at::erf(v); }},
      {"atan", [](const at::Tensor& v) { return at::atan(v); }},
      {"log", [](const at::Tensor& v) { return at::log(v); }},
      {"rsqrt", [](const at::Tensor& v) { return at::rsqrt(v); }},
      {"reciprocal", [](const at::Tensor& v) { return at::reciprocal(v); }},
      {"relu", [](const at::Tensor& v) { return at::relu(v); }},
      {"abs", [](const at::Tensor& v) { return at::abs(v); }},
      {"neg", [](const at::Tensor& v) { return at::neg(v); }},
      {"sign", [](const at::Tensor& v) { return at::sign(v); }},
      {"square", [](const at::Tensor& v) { return at::square(v); }},
      {"round", [](const at::Tensor& v) { return at::round(v) + 1; }},
      {"floor", [](const at::Tensor& v) { return at::floor(v) + 1; }},
      {"ceil", [](const at::Tensor& v) { return at::ceil(v) + 1; }},
      {"clamp", [](const at::Tensor& v) { return at::clamp(v, -1, 5); }},
      {"clamp by floats", [](const at::Tensor& v) { return at::clamp(v, -0.5, 5.5); }},
      {"sum", [](const at::Tensor& v) { return at::sum(v.to(torch::kInt), {1}); }},
      {"prod", [](const at::Tensor& v) { return at::prod(v.to(torch::kInt), 1); }},
      {"any", [](const at::Tensor& v) { return at::any(v, 1); }},
      {"all of bytes", [](const at::Tensor& v) { return at::all(v.to(torch::kByte), 1); }},
      {"logical_not", [](const at::Tensor& v) { return at::logical_not(v); }}};
  for (const auto& [name, body] : bodies) expect_same_limits(name, body, x);
}

TEST(ExportSpelled, Images) {
  torch::manual_seed(3);
  const at::Tensor x = torch::randn({2, 4, 6, 8});
  expect_same_numbers(
      "circular",
      [](const at::Tensor& v) {
        return at::pad(v, {1, 2, 0, 3}, "circular");
      },
      x);
  expect_same_numbers(
      "unshuffle", [](const at::Tensor& v) { return at::pixel_unshuffle(v, 2); }, x);
  expect_same_numbers(
      "uneven",
      [](const at::Tensor& v) {
        return at::adaptive_avg_pool2d(v, {4, 3});
      },
      x);
  expect_same_numbers(
      "uneven maxima",
      [](const at::Tensor& v) {
        return std::get<0>(at::adaptive_max_pool2d(v, {4, 3}));
      },
      x);
  for (const bool padded : {false, true}) {
    const std::vector<int64_t> kernel = {3, 2}, dilation = {1, 2}, pad = {padded, 2 * padded},
                               stride = {2, 1};
    const Body columns = [=](const at::Tensor& v) { return at::im2col(v, kernel, dilation, pad, stride); };
    expect_same_numbers("im2col", columns, x);
    expect_same_numbers(
        "col2im",
        [=](const at::Tensor& v) {
          return at::col2im(v, {6, 8}, kernel, dilation, pad, stride);
        },
        columns(x));
  }
  for (const char* indexing : {"ij", "xy"}) {
    expect_same_numbers(
        "meshgrid",
        [=](const at::Tensor& v) {
          const at::Tensor row = v.select(0, 0).select(0, 0).select(0, 0);
          const std::vector<at::Tensor> grid = at::meshgrid({row, row.slice(0, 0, 3)}, indexing);
          return v.slice(2, 0, 1).slice(3, 0, 1) + grid[0] * 2 + grid[1];
        },
        x);
  }
  for (const bool ceil : {false, true}) {
    expect_same_numbers(
        "divisor",
        [=](const at::Tensor& v) {
          return at::avg_pool2d(v, {3, 2}, {2, 3}, {1, 1}, ceil, /*count_include_pad=*/false, 4);
        },
        x);
  }
  expect_same_numbers(
      "grid",
      [](const at::Tensor& v) {
        return at::grid_sampler(v, v.slice(1, 0, 2).permute({0, 2, 3, 1}), 0, 0, true);
      },
      x);
}

TEST(ExportSpelled, ExtremesWithTheirPlaces) {
  torch::manual_seed(7);
  const at::Tensor x = torch::randn({3, 4, 6, 5});
  for (const bool keep : {false, true}) {
    for (const int64_t dim : {1, -1}) {
      const auto places = [=](const at::Tensor& v) { return std::get<1>(v.max(dim, keep)); };
      expect_same_numbers("places", places, x);
      expect_same_numbers(
          "places in f32",
          [=](const at::Tensor& v) { return std::get<1>(v.min(dim, keep)).to(torch::kFloat); }, x);
      expect_same_numbers(
          "both",
          [=](const at::Tensor& v) {
            const auto [most, at] = v.max(dim, keep);
            return most * 2 + at;
          },
          x);
      const auto ties = [=](const at::Tensor& v) {
        return std::get<1>(v.round().clamp(-1, 1).max(dim, keep));
      };
      expect_same_numbers("the first of several", ties, x);
    }
  }
}

TEST(ExportSpelled, DistancesOfAllRows) {
  torch::manual_seed(8);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const int64_t rows : {5, 30}) {  // LibTorch takes products of more than 25 rows
    const at::Tensor x = torch::randn({3, rows, 7}), others = torch::randn({4, 7});
    for (const double order : {0.0, 1.0, 1.5, 2.0, 3.0, infinity}) {
      const std::string name = "of order " + std::to_string(order);
      expect_same_numbers(
          name, [=](const at::Tensor& v) { return torch::cdist(v, v.flip({2}), order); }, x);
      expect_same_numbers(
          name, [=](const at::Tensor& v) { return torch::cdist(v.slice(1, 0, 3), others, order); }, x);
    }
    // A row is at distance 0 from itself: the products' rounding is of the square root of the numbers'.
    const torch::NoGradGuard no_grad;
    const auto module = captured_function([](const at::Tensor& v) { return torch::cdist(v, v); }, x);
    const at::Tensor ours = exchange::import_onnx(exchange::export_onnx(*module), "model.onnx")->forward(x);
    EXPECT_LE(relative_difference(module->forward(x), ours), rows > 25 ? 1e-3 : kNearlyEqual);
  }
}

TEST(ExportSpelled, CallsOfTheCppFrontend) {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({3, 4, 6});
  const std::vector<std::pair<std::string, Body>> bodies = {
      {"cosine", [](const at::Tensor& v) { return torch::cosine_similarity(v, v.flip({1}) + 1, 2); }},
      {"deg2rad", [](const at::Tensor& v) { return torch::deg2rad(v) + torch::rad2deg(v); }},
      {"deg2rad of integers", [](const at::Tensor& v) { return torch::deg2rad((v * 9).to(torch::kLong)); }},
      {"eye", [](const at::Tensor& v) { return v.matmul(torch::eye(6)); }},
      {"linspace", [](const at::Tensor& v) { return v * torch::linspace(-1, 1, 6); }},
      {"floor_divide", [](const at::Tensor& v) { return torch::floor_divide(v * 4, 0.1); }},
      {"outer", [](const at::Tensor& v) {
         return torch::tensordot(v, torch::ones({6, 2}), {2}, {0});
       }}};
  for (const auto& [name, body] : bodies) expect_same_numbers(name, body, x);
}

TEST(ExportSpelled, BitsOfAnotherTypeHaveNoForm) {
  const auto module =
      captured_function([](const at::Tensor& v) { return v.view(torch::kInt); }, torch::randn({2, 3}));
  EXPECT_ERROR(exchange::export_onnx(*module), "expected a view of other sizes, got one of another type");
  EXPECT_ERROR(exchange::export_tflite(*module), "expected a view of other sizes, got one of another type");
}

}  // namespace ulp::test
