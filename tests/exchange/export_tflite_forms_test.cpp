// Calls that a TensorFlow Lite file has in other operators: what the format's rules compute from it is what
// LibTorch does.
#include <torch/torch.h>

#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "captured_function.h"
#include "error_of.h"
#include "tflite_run.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/graph/graph_module.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {

namespace {

using FormBody = std::function<at::Tensor(const at::Tensor&)>;
using Forms = std::vector<std::pair<std::string, FormBody>>;
using Pads = std::vector<int64_t>;

/// Of a file for the batch of x. Images of four dimensions may lie either way.
at::Tensor by_file(const FormBody& body, const at::Tensor& x, const at::Tensor& right) {
  const auto module = captured_function(body, x);
  const auto file = read_tflite(exchange::export_tflite(*module, {.batch = x.size(0)}));
  const at::Tensor made = TfliteRun(*file).run({channels_last(x)}).at(0);
  if (made.dim() == 4 && (made.sizes() != right.sizes() || !torch::allclose(made, right, 1e-5, 1e-5)))
    return made.permute({0, 3, 1, 2});
  return made;
}

/// Within a few roundings of the largest number.
void expect_right(const Forms& forms, const at::Tensor& x, double most = 2e-6) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, body] : forms) {
    SCOPED_TRACE(name);
    const at::Tensor right = body(x), made = by_file(body, x, right);
    ASSERT_EQ(made.sizes(), right.sizes());
    ASSERT_EQ(made.scalar_type(), right.scalar_type());
    EXPECT_TRUE(torch::equal(made.isnan(), right.isnan())) << made << right;
    const double largest =
        std::max(right.to(at::kDouble).nan_to_num(0, 0, 0).abs().max().item<double>(), 1e-3);
    const at::Tensor apart = (made.to(at::kDouble) - right.to(at::kDouble)).nan_to_num(0);
    EXPECT_LE(apart.abs().max().item<double>(), most * largest) << made << right;
  }
}

at::Tensor form_image(at::IntArrayRef sizes) {
  torch::manual_seed(3);
  return torch::randn(sizes);
}

}  // namespace

TEST(ExportTfliteForms, FunctionsAreSpelledOut) {
  const at::Tensor x =
      torch::tensor({-8.F, -1.5F, -0.3F, -1e-4F, 0.F, 2e-5F, 0.2F, 0.9F, 1.7F, 12.F}).view({2, 5});
  const at::Tensor slope = torch::full({1}, 0.3F);
  const Forms forms = {
      {"square", [](const at::Tensor& v) { return at::square(v); }},
      {"softplus", [](const at::Tensor& v) { return at::softplus(v); }},
      {"softplus of a threshold", [](const at::Tensor& v) { return at::softplus(v, 2, 1); }},
      {"log_sigmoid", [](const at::Tensor& v) { return at::log_sigmoid(v); }},
      {"mish", [](const at::Tensor& v) { return at::mish(v); }},
      {"elu", [](const at::Tensor& v) { return at::elu(v, 0.7, 1.1, 0.9); }},
      {"celu", [](const at::Tensor& v) { return at::celu(v, 0.6); }},
      {"selu", [](const at::Tensor& v) { return at::selu(v); }},
      {"hardshrink", [](const at::Tensor& v) { return at::hardshrink(v, 0.4); }},
      {"softshrink", [](const at::Tensor& v) { return at::softshrink(v, 0.4); }},
      {"threshold", [](const at::Tensor& v) { return at::threshold(v, 0.1, 20); }},
      {"prelu", [=](const at::Tensor& v) { return at::prelu(v, slope); }},
      {"log1p", [](const at::Tensor& v) { return at::log1p(v.abs()); }},
      {"expm1", [](const at::Tensor& v) { return at::expm1(v); }},
      {"log2", [](const at::Tensor& v) { return at::log2(v.abs()); }},
      {"exp2", [](const at::Tensor& v) { return at::exp2(v); }},
      {"logaddexp", [](const at::Tensor& v) { return at::logaddexp(v, v * 2); }},
      {"logit", [](const at::Tensor& v) { return at::logit(v, 1e-3); }},
      {"erf", [](const at::Tensor& v) { return at::erf(v); }},
      {"erfc", [](const at::Tensor& v) { return at::erfc(v); }},
      {"far erfc", [](const at::Tensor& v) { return at::log(at::erfc(v.abs() * 0.7 + 1e-3)); }},
      {"tan", [](const at::Tensor& v) { return at::tan(v); }},
      {"asin", [](const at::Tensor& v) { return at::asin(v * 0.08); }},
      {"acos", [](const at::Tensor& v) { return at::acos(v * 0.08); }},
      {"atan", [](const at::Tensor& v) { return at::atan(v); }},
      {"sinh", [](const at::Tensor& v) { return at::sinh(v); }},
      {"cosh", [](const at::Tensor& v) { return at::cosh(v); }},
      {"asinh", [](const at::Tensor& v) { return at::asinh(v); }},
      {"acosh", [](const at::Tensor& v) { return at::acosh(v.abs() + 1); }},
      {"atanh", [](const at::Tensor& v) { return at::atanh(v * 0.08); }},
      {"sinc", [](const at::Tensor& v) { return at::sinc(v); }},
      {"reciprocal", [](const at::Tensor& v) { return at::reciprocal(v + 0.5); }},
      {"trunc", [](const at::Tensor& v) { return at::trunc(v); }},
      {"frac", [](const at::Tensor& v) { return at::frac(v); }},
      {"remainder", [](const at::Tensor& v) { return at::remainder(v, -0.7); }},
      {"fmod", [](const at::Tensor& v) { return at::fmod(v, 0.7); }},
      {"quotient rounded down", [](const at::Tensor& v) { return at::div(v, 0.7, "floor"); }},
      {"quotient cut off", [](const at::Tensor& v) { return at::div(v, 0.7, "trunc"); }},
      {"addcmul", [](const at::Tensor& v) { return at::addcmul(v, v, v + 1, 0.5); }},
      {"lerp", [](const at::Tensor& v) { return at::lerp(v, v * 2, 0.3); }},
      {"xor", [](const at::Tensor& v) { return at::bitwise_xor(v > 0, v < 1).to(at::kFloat); }}};
  expect_right(forms, x);
}

/// Near 0 the smallest numbers keep their digits.
TEST(ExportTfliteForms, SmallNumbersKeepTheirDigits) {
  const at::Tensor x = torch::tensor({-3e-6F, 7e-8F, 2e-7F, -4e-5F}).view({2, 2});
  expect_right({{"log1p", [](const at::Tensor& v) { return at::log1p(v); }},
                {"expm1", [](const at::Tensor& v) { return at::expm1(v); }},
                {"erf", [](const at::Tensor& v) { return at::erf(v); }},
                {"sinh", [](const at::Tensor& v) { return at::sinh(v) * 1e3; }},
                {"asinh", [](const at::Tensor& v) { return at::asinh(v) * 1e3; }},
                {"atanh", [](const at::Tensor& v) { return at::atanh(v) * 1e3; }},
                {"log1p scaled", [](const at::Tensor& v) { return at::log1p(v) * 1e4; }},
                {"expm1 scaled", [](const at::Tensor& v) { return at::expm1(v) * 1e4; }},
                {"erf scaled", [](const at::Tensor& v) { return at::erf(v) * 1e4; }}},
               x);
}

TEST(ExportTfliteForms, InfinitiesAndWhatIsNoNumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const at::Tensor x = torch::tensor({-kInfinity, kInfinity, NAN, 0.F, 3.F, -200.F}).view({2, 3});
  expect_right({{"isnan", [](const at::Tensor& v) { return at::isnan(v); }},
                {"isinf", [](const at::Tensor& v) { return at::isinf(v); }},
                {"nan_to_num", [](const at::Tensor& v) { return at::nan_to_num(v, 1.5, 10, -20); }},
                {"softplus", [](const at::Tensor& v) { return at::softplus(v).clamp_max(1e30); }},
                {"expm1", [](const at::Tensor& v) { return at::expm1(v).clamp_max(1e30); }},
                {"erf", [](const at::Tensor& v) { return at::erf(v); }},
                {"erfc", [](const at::Tensor& v) { return at::erfc(v); }}},
               x);
}

TEST(ExportTfliteForms, NormsAndVariances) {
  const at::Tensor x = form_image({2, 6, 4, 5});
  const at::Tensor weight = torch::rand({6}) + 0.5, bias = torch::randn({6});
  const auto norm = [](double order, Pads dims, bool keep) {
    return [=](const at::Tensor& v) { return at::linalg_vector_norm(v, order, dims, keep); };
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  expect_right(
      {{"2", norm(2, {1}, true)},
       {"1", norm(1, {2, 3}, false)},
       {"0", norm(0, {-1}, false)},
       {"3", norm(3, {1}, false)},
       {"infinity", norm(kInfinity, {1, 2}, true)},
       {"-infinity", norm(-kInfinity, {3}, false)},
       {"var",
        [](const at::Tensor& v) {
          return at::var(v, Pads{1, 2}, std::optional<at::Scalar>(1), true);
        }},
       {"std", [](const at::Tensor& v) { return at::std(v, Pads{3}, std::optional<at::Scalar>(0), false); }},
       {"logsumexp", [](const at::Tensor& v) { return at::logsumexp(v * 40, {1}); }},
       {"group_norm", [=](const at::Tensor& v) { return at::group_norm(v, 3, weight, bias); }},
       {"instance_norm",
        [=](const at::Tensor& v) {
          return at::instance_norm(v, weight, bias, {}, {}, true, 0.1, 1e-5, false);
        }},
       {"rms_norm", [](const at::Tensor& v) { return at::rms_norm(v, {5}, {}, 1e-5); }},
       {"softmax of rows", [](const at::Tensor& v) { return at::softmax(v, 2); }},
       {"prod", [](const at::Tensor& v) { return at::prod(v, 1); }},
       {"any", [](const at::Tensor& v) { return at::any(v > 1, 1); }},
       {"all", [](const at::Tensor& v) { return at::all(v > -1, 2, true); }},
       {"argmin", [](const at::Tensor& v) { return at::argmin(v, 2); }},
       {"argmax that stays", [](const at::Tensor& v) { return at::argmax(v, 1, true); }},
       {"max", [](const at::Tensor& v) { return std::get<0>(at::max(v, 2)); }},
       {"places of min", [](const at::Tensor& v) { return std::get<1>(at::min(v, 1)); }},
       {"cumsum", [](const at::Tensor& v) { return at::cumsum(v, 2); }},
       {"cumprod", [](const at::Tensor& v) { return at::cumprod(v, 3); }}},
      x, 5e-6);
}

TEST(ExportTfliteForms, PadsOfEveryMode) {
  const at::Tensor image = form_image({2, 3, 4, 5}), sequence = form_image({2, 3, 6});
  const auto padded = [](Pads pads, const char* mode) {
    return [=](const at::Tensor& v) { return at::pad(v, pads, mode); };
  };
  expect_right({{"replicate", padded({2, 1, 0, 3}, "replicate")},
                {"circular", padded({1, 2, 3, 0}, "circular")},
                {"constant that cuts", padded({-1, 2, 1, -2}, "constant")}},
               image, 0);
  expect_right({{"replicate", padded({2, 1}, "replicate")}, {"circular", padded({1, 4}, "circular")}},
               sequence, 0);
}

TEST(ExportTfliteForms, AveragesByEveryDivisor) {
  const at::Tensor image = form_image({2, 3, 7, 8}), volume = form_image({2, 2, 5, 4, 6});
  Forms forms, of_volumes;
  for (const bool ceil : {false, true}) {
    for (const bool counts : {false, true}) {
      const std::string words = std::string(ceil ? "ceil " : "") + (counts ? "counting" : "");
      forms.push_back({words, [=](const at::Tensor& v) {
                         return at::avg_pool2d(v, {3, 2}, {2, 3}, {1, 1}, ceil, counts);
                       }});
      forms.push_back({words + " by 3", [=](const at::Tensor& v) {
                         return at::avg_pool2d(v, {3, 2}, {2, 3}, {1, 0}, ceil, counts, 3);
                       }});
      of_volumes.push_back({words, [=](const at::Tensor& v) {
                              return at::avg_pool3d(v, {3, 2, 2}, {2, 1, 3}, {1, 0, 1}, ceil, counts);
                            }});
    }
  }
  forms.push_back({"unequal windows", [](const at::Tensor& v) {
                     return at::adaptive_avg_pool2d(v, {3, 5});
                   }});
  forms.push_back({"largest of unequal windows", [](const at::Tensor& v) {
                     return std::get<0>(at::adaptive_max_pool2d(v, {4, 3}));
                   }});
  forms.push_back({"largest of dilated windows", [](const at::Tensor& v) {
                     return at::max_pool2d(v, {3, 2}, {1, 2}, {1, 1}, {2, 3}, true);
                   }});
  of_volumes.push_back({"largest", [](const at::Tensor& v) {
                          return at::max_pool3d(v, {2, 3, 2}, {2, 1, 3}, {1, 1, 0}, {1, 1, 2}, true);
                        }});
  expect_right(forms, image);
  expect_right(of_volumes, volume);
}

namespace {

/// By default a window of 4 x 2 at distances of 2 and 3, with 2 rows and a column of padding.
struct CodeWindows {
  bool ceil = false, counts = false;
  Pads kernel = {4, 2}, stride = {2, 3}, padding = {2, 1};
  at::Tensor pool(const at::Tensor& x) const {
    return at::avg_pool2d(x, kernel, stride, padding, ceil, counts);
  }
};

/// Averages of codes [N, H, W, C] by plain loops; what lies in the middle of two codes goes away from code 0.
at::Tensor averaged_codes(const at::Tensor& codes, int64_t zero, at::IntArrayRef out,
                          const CodeWindows& how) {
  const Pads &kernel = how.kernel, &pad = how.padding;
  const at::Tensor x = codes.to(at::kLong), y = torch::zeros(out, at::kLong);
  const auto clipped = [](int64_t start, int64_t end, int64_t low, int64_t high) {
    return std::pair(std::max(start, low), std::min(end, high));
  };
  for (int64_t h = 0; h < out[1]; ++h) {
    for (int64_t w = 0; w < out[2]; ++w) {
      const int64_t top = how.stride[0] * h - pad[0], left = how.stride[1] * w - pad[1];
      const auto [h0, h1] = clipped(top, top + kernel[0], 0, x.size(1));
      const auto [w0, w1] = clipped(left, left + kernel[1], 0, x.size(2));
      const auto [t0, t1] = clipped(top, top + kernel[0], -pad[0], x.size(1) + pad[0]);
      const auto [l0, l1] = clipped(left, left + kernel[1], -pad[1], x.size(2) + pad[1]);
      const int64_t inside = (h1 - h0) * (w1 - w0), all = (t1 - t0) * (l1 - l0);
      const int64_t by = how.counts ? all : inside;
      const at::Tensor part = x.slice(1, h0, h1).slice(2, w0, w1);
      for (int64_t n = 0; n < out[0]; ++n) {
        for (int64_t c = 0; c < out[3]; ++c) {
          const int64_t sum = part[n].select(2, c).sum().item<int64_t>() + zero * (by - inside);
          y[n][h][w][c] = (sum + (sum > 0 ? by / 2 : -(by / 2))) / by;
        }
      }
    }
  }
  return y.to(at::kChar);
}

/// Between two layers of static int8, the codes of a file's averages are those of the plain loops.
void expect_averaged_codes(const CodeWindows& windows, const at::Tensor& image) {
  std::ostringstream words;
  words << (windows.ceil ? "ceil " : "") << (windows.counts ? "counting " : "") << windows.kernel
        << windows.stride << windows.padding << " of " << image.sizes();
  SCOPED_TRACE(words.str());
  auto net = std::make_shared<FunctionNet>();
  auto first = net->register_module("first", torch::nn::Conv2d(3, 3, 1)),
       last = net->register_module("last", torch::nn::Conv2d(3, 2, 1));
  net->body = [=](const at::Tensor& v) mutable { return last->forward(windows.pool(first->forward(v))); };
  const auto prepared = quant::prepare(captured_net(net, image), quant::Recipe::tflite_int8());
  prepared->forward(image);
  const auto file =
      read_tflite(exchange::export_tflite(*quant::convert(prepared), {.batch = 2, .integer_io = true}));
  for (const TfliteOperator& op : file->operators) EXPECT_EQ(file->output(op).type, kInt8Type) << op.code;
  ASSERT_EQ(file->operators.front().code, kConv);
  ASSERT_EQ(file->operators.back().code, kConv);
  file->inputs = file->operators.front().outputs;
  file->outputs = {file->operators.back().inputs.at(0)};
  file->operators.erase(file->operators.begin());
  file->operators.pop_back();
  const TfliteTensor &in = file->tensor(file->inputs[0]), &out = file->tensor(file->outputs[0]);
  EXPECT_EQ(in.scale, out.scale);
  EXPECT_EQ(in.zero_point, out.zero_point);
  const at::Tensor codes = torch::randint(-128, 128, {2, image.size(2), image.size(3), 3}, at::kChar);
  const at::Tensor made = TfliteRun(*file).run({codes}).at(0);
  const at::Tensor right = averaged_codes(codes, in.zero_point.at(0), made.sizes(), windows);
  EXPECT_EQ(made.sizes(), windows.pool(image).permute({0, 2, 3, 1}).sizes());
  EXPECT_TRUE(torch::equal(made, right)) << (made.to(at::kInt) - right.to(at::kInt)).abs().max();
}

}  // namespace

/// Windows that end outside, or whose padding does not count, between two layers.
TEST(ExportTfliteForms, AveragesOfCodesByRunsOfWindows) {
  const torch::NoGradGuard no_grad;
  const at::Tensor image = form_image({2, 3, 7, 8});
  for (const bool ceil : {false, true}) {
    for (const bool counts : {false, true}) expect_averaged_codes({.ceil = ceil, .counts = counts}, image);
  }
}

TEST(ExportTfliteForms, AveragesOfCodesByRandomWindows) {
  const torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    Draw draw(seed);
    CodeWindows windows{
        .ceil = draw.coin(), .counts = draw.coin(), .kernel = {}, .stride = {}, .padding = {}};
    for (int d = 0; d < 2; ++d) {
      windows.kernel.push_back(draw.between(1, 4));
      windows.stride.push_back(draw.between(1, 3));
      windows.padding.push_back(draw.between(0, windows.kernel.back() / 2));
    }
    expect_averaged_codes(windows, form_image({2, 3, draw.between(4, 8), draw.between(4, 8)}));
  }
}

TEST(ExportTfliteForms, ResizesByStoredMatricesAndPicks) {
  const at::Tensor image = form_image({2, 3, 5, 7}), sequence = form_image({2, 3, 6}),
                   volume = form_image({2, 2, 3, 4, 5});
  expect_right({{"bicubic",
                 [](const at::Tensor& v) {
                   return at::upsample_bicubic2d(v, {9, 4}, false);
                 }},
                {"bicubic by corners",
                 [](const at::Tensor& v) {
                   return at::upsample_bicubic2d(v, {3, 11}, true);
                 }},
                {"bicubic by factors",
                 [](const at::Tensor& v) {
                   return at::upsample_bicubic2d(v, {8, 11}, false, 1.7, 1.6);
                 }},
                {"antialiased",
                 [](const at::Tensor& v) {
                   return at::_upsample_bilinear2d_aa(v, {2, 3}, false);
                 }},
                {"antialiased by corners",
                 [](const at::Tensor& v) {
                   return at::_upsample_bilinear2d_aa(v, {9, 4}, true);
                 }},
                {"antialiased by factors",
                 [](const at::Tensor& v) {
                   return at::_upsample_bilinear2d_aa(v, {3, 5}, false, 0.7, 0.8);
                 }},
                {"antialiased bicubic",
                 [](const at::Tensor& v) {
                   return at::_upsample_bicubic2d_aa(v, {3, 9}, false);
                 }},
                {"nearest-exact",
                 [](const at::Tensor& v) {
                   return at::_upsample_nearest_exact2d(v, {8, 4});
                 }},
                {"nearest-exact by factors",
                 [](const at::Tensor& v) {
                   return at::_upsample_nearest_exact2d(v, {8, 11}, 1.7, 1.6);
                 }}},
               image);
  expect_right({{"nearest", [](const at::Tensor& v) { return at::upsample_nearest1d(v, {10}); }},
                {"linear", [](const at::Tensor& v) { return at::upsample_linear1d(v, {9}, false); }}},
               sequence);
  expect_right({{"nearest",
                 [](const at::Tensor& v) {
                   return at::upsample_nearest3d(v, {5, 3, 7});
                 }},
                {"trilinear",
                 [](const at::Tensor& v) {
                   return at::upsample_trilinear3d(v, {5, 3, 7}, false);
                 }}},
               volume);
}

/// LibTorch repeats the first row there.
TEST(ExportTfliteForms, AntialiasedColumnsAreRefused) {
  const torch::NoGradGuard no_grad;
  const auto module = captured_function(
      [](const at::Tensor& v) {
        return at::_upsample_bilinear2d_aa(v, {2, 1}, false);
      },
      form_image({2, 3, 5, 7}));
  EXPECT_ERROR(exchange::export_tflite(*module), "expected an antialiased result of several columns");
}

TEST(ExportTfliteForms, ImagesAreSampledAtPlaces) {
  const at::Tensor image = form_image({2, 3, 5, 7});
  // Places follow the image; many are outside.
  const auto grid_of = [](const at::Tensor& v) { return v.slice(1, 0, 2).permute({0, 2, 3, 1}) * 1.3; };
  Forms forms;
  for (const int64_t mode : {0, 1, 2}) {
    for (const int64_t outside : {0, 1, 2}) {
      for (const bool corners : {false, true}) {
        forms.push_back(
            {std::to_string(mode) + " " + std::to_string(outside) + (corners ? " corners" : ""),
             [=](const at::Tensor& v) { return at::grid_sampler(v, grid_of(v), mode, outside, corners); }});
      }
    }
  }
  expect_right(forms, image, 5e-6);
}

TEST(ExportTfliteForms, ColumnsOfWindowsAreFolded) {
  expect_right({{"without gaps",
                 [](const at::Tensor& v) {
                   return at::col2im(v, {4, 5}, {2, 2}, {1, 1}, {0, 0}, {1, 1});
                 }}},
               form_image({2, 12, 12}));
  expect_right({{"dilated, padded, by steps",
                 [](const at::Tensor& v) {
                   return at::col2im(v, {7, 9}, {2, 3}, {2, 1}, {1, 2}, {2, 3});
                 }}},
               form_image({2, 12, 16}));
}

TEST(ExportTfliteForms, GridsOfAxes) {
  const at::Tensor other = torch::randn({4});
  const auto grid = [=](const char* indexing, size_t which) {
    return [=](const at::Tensor& v) { return at::meshgrid({v, other, v * 2}, indexing)[which] * 1; };
  };
  Forms forms;
  for (const char* indexing : {"ij", "xy"}) {
    for (const size_t which : {size_t{0}, size_t{1}, size_t{2}})
      forms.push_back({indexing + std::to_string(which), grid(indexing, which)});
  }
  expect_right(forms, form_image({3}), 0);
}

/// What is rounded down of a finite number by an infinite one is 0 or -1.
TEST(ExportTfliteForms, QuotientsByInfinitiesAreRoundedDown) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const at::Tensor x = torch::tensor({3.F, -3.F, 7.5F, -3.F, 0.F, -7.5F}).view({2, 3});
  const at::Tensor by = torch::tensor({kInfinity, -kInfinity, -2.F});
  expect_right({{"tensors", [=](const at::Tensor& v) { return at::div(v, by, "floor"); }},
                {"a number", [](const at::Tensor& v) { return at::div(v, kInfinity, "floor"); }},
                {"a negative one", [](const at::Tensor& v) { return at::div(v, -kInfinity, "floor"); }}},
               x, 0);
}

TEST(ExportTfliteForms, BlocksThatAreNoSquares) {
  const at::Tensor image = form_image({2, 4, 5, 6});
  const at::Tensor weight = form_image({4, 3, 3, 2}) * 0.3, bias = torch::randn({3});
  expect_right(
      {{"transposed",
        [=](const at::Tensor& v) {
          return at::conv_transpose2d(v, weight, bias, torch::IntArrayRef{3, 2}, torch::IntArrayRef{1, 0});
        }},
       {"unshuffled", [](const at::Tensor& v) { return at::pixel_unshuffle(v.slice(2, 0, 4), 2); }}},
      image);
}

TEST(ExportTfliteForms, VolumesAreConvolved) {
  const at::Tensor volume = form_image({2, 4, 5, 6, 4});
  const at::Tensor weight = form_image({6, 2, 2, 3, 2}) * 0.3, each = form_image({4, 1, 1, 1, 1}),
                   bias = torch::randn({6});
  expect_right({{"groups",
                 [=](const at::Tensor& v) {
                   return at::relu(at::conv3d(v, weight, bias, at::IntArrayRef{2, 1, 1},
                                              at::IntArrayRef{1, 0, 2}, at::IntArrayRef{1, 2, 1}, 2));
                 }},
                {"scales",
                 [=](const at::Tensor& v) {
                   return at::conv3d(v, each, {}, at::IntArrayRef{1}, at::IntArrayRef{0}, at::IntArrayRef{1},
                                     4);
                 }}},
               volume);
}

TEST(ExportTfliteForms, ProductsWithWhatIsAdded) {
  const at::Tensor rows = form_image({3, 4}), matrices = form_image({2, 3, 4});
  const at::Tensor weight = form_image({4, 5}), bias = torch::randn({5}), three = form_image({5, 4, 4});
  expect_right({{"addmm", [=](const at::Tensor& v) { return at::addmm(bias, v, weight, 0.5, 2); }},
                {"bilinear", [=](const at::Tensor& v) { return at::bilinear(v, v * 2, three, bias); }}},
               rows);
  expect_right(
      {{"baddbmm", [](const at::Tensor& v) { return at::baddbmm(v.sum(2, true), v, v.mT(), 2, 0.5); }}},
      matrices);
}

TEST(ExportTfliteForms, PiecesInAnyOrder) {
  const at::Tensor x = form_image({2, 4, 6});
  const at::Tensor ids = torch::tensor({2, -1, 0});
  expect_right(
      {{"sorted", [](const at::Tensor& v) { return std::get<0>(at::sort(v, 1, true)); }},
       {"rising", [](const at::Tensor& v) { return std::get<0>(at::sort(v, 2, false)); }},
       {"places", [](const at::Tensor& v) { return at::argsort(v, 1, false); }},
       {"largest", [](const at::Tensor& v) { return std::get<0>(at::topk(v, 2, 1)); }},
       {"smallest", [](const at::Tensor& v) { return std::get<1>(at::topk(v, 3, 2, false)); }},
       {"gathered", [](const at::Tensor& v) { return at::gather(v, 1, at::argsort(v, 1, false)); }},
       {"picked",
        [=](const at::Tensor& v) {
          return at::index(v, {std::nullopt, ids});
        }},
       {"flipped",
        [](const at::Tensor& v) {
          return v.flip({1, 2});
        }},
       {"rolled",
        [](const at::Tensor& v) {
          return v.roll({2, -1}, {1, 2});
        }},
       {"repeated",
        [](const at::Tensor& v) {
          return v.repeat({1, 2, 3});
        }},
       {"tiled", [](const at::Tensor& v) { return at::tile(v, 2); }},
       {"repeated each", [](const at::Tensor& v) { return v.repeat_interleave(2, 1); }},
       {"turned", [](const at::Tensor& v) { return v.mT().movedim(1, 2) * 2; }},
       {"lower", [](const at::Tensor& v) { return at::tril(v, -1); }},
       {"upper", [](const at::Tensor& v) { return at::triu(v, 1); }},
       {"one place", [](const at::Tensor& v) { return at::one_hot(at::argmax(v, 1), 4).to(at::kFloat); }},
       {"written", [](const at::Tensor& v) { return at::scatter(v, 1, at::argmax(v, 1, true), 7); }},
       {"added",
        [](const at::Tensor& v) {
          return at::scatter_add(v, 1, at::argsort(v, 1, false).slice(1, 0, 2), v.slice(1, 0, 2));
        }}},
      x, 1e-6);
  const at::Tensor image = form_image({2, 3, 5, 6});
  expect_right({{"windows",
                 [](const at::Tensor& v) {
                   return at::im2col(v, {2, 3}, {1, 2}, {1, 0}, {2, 1});
                 }}},
               image, 0);
}

TEST(ExportTfliteForms, RecurrentLayersStepByStep) {
  torch::manual_seed(5);
  auto net = std::make_shared<FunctionNet>();
  auto lstm = net->register_module(
      "lstm",
      torch::nn::LSTM(torch::nn::LSTMOptions(4, 3).num_layers(2).bidirectional(true).batch_first(true)));
  auto gru = net->register_module("gru", torch::nn::GRU(torch::nn::GRUOptions(6, 5)));
  net->body = [=](const at::Tensor& v) mutable {
    return std::get<0>(gru->forward(std::get<0>(lstm->forward(v)).transpose(0, 1))).transpose(0, 1) * 1;
  };
  const torch::NoGradGuard no_grad;
  const at::Tensor x = form_image({2, 5, 4}), right = net->body(x);
  const auto module = captured_net(net, x);
  const auto file = read_tflite(exchange::export_tflite(*module, {.batch = 2}));
  EXPECT_LE(relative_difference(TfliteRun(*file).run({x}).at(0), right), 2e-6);
}

}  // namespace ulp::test
