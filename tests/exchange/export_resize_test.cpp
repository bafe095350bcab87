// Resizing by factors and sizes of every kind: files give what LibTorch gives. ONNX files are read back;
// TensorFlow Lite files and Core ML packages are run by their formats' rules.
#include <torch/torch.h>

#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include "captured_function.h"
#include "coreml_run.h"
#include "error_of.h"
#include "onnx_reader.h"
#include "temporary_folder.h"
#include "tflite_run.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/lower/partitioned_model.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {

namespace {

namespace F = torch::nn::functional;
using Module = std::shared_ptr<graph::GraphModule>;

/// An interpolation: by factors or to sizes, one for each dimension behind the channels.
struct Interpolation {
  std::vector<int64_t> from;
  std::vector<double> factors;
  std::vector<int64_t> sizes;
  bool linear = false, corners = false;

  F::InterpolateFuncOptions options() const {
    F::InterpolateFuncOptions made;
    if (linear && from.size() == 1) made.mode(torch::kLinear);
    if (linear && from.size() == 2) made.mode(torch::kBilinear);
    if (linear && from.size() == 3) made.mode(torch::kTrilinear);
    if (linear) made.align_corners(corners);
    if (factors.empty()) return made.size(sizes);
    return made.scale_factor(factors).recompute_scale_factor(false);
  }
  at::Tensor image() const {
    std::vector<int64_t> shape = {2, 3};
    shape.insert(shape.end(), from.begin(), from.end());
    return torch::randn(shape);
  }
  Module captured(const at::Tensor& x) const {
    return captured_function(
        [options = options()](const at::Tensor& one) { return F::interpolate(one, options); }, x);
  }
  std::string words() const {
    std::ostringstream out;
    out << (linear ? "linear" : "nearest") << (corners ? " by corners" : "") << " of "
        << at::IntArrayRef(from) << " by " << at::ArrayRef<double>(factors) << " or to "
        << at::IntArrayRef(sizes);
    return out.str();
  }
};

/// Factors of one to three digits, or sizes.
Interpolation drawn(Draw& draw, size_t dims) {
  Interpolation made;
  made.linear = draw.coin();
  made.corners = made.linear && draw.between(0, 3) == 0;
  const bool by_factors = draw.between(0, 2) > 0;
  for (size_t d = 0; d < dims; ++d) {
    made.from.push_back(draw.between(1, dims == 3 ? 7 : 40));
    const double digits = draw.one_of({10.0, 100.0, 1000.0});
    double factor = static_cast<double>(
        draw.between(static_cast<int64_t>(0.3 * digits), static_cast<int64_t>(3 * digits)));
    factor = std::max(factor / digits, 1.0 / static_cast<double>(made.from.back()));
    if (by_factors) made.factors.push_back(factor);
    if (!by_factors) made.sizes.push_back(draw.between(1, 60));
  }
  // What a float of a factor such as 1 / 3 would cut off.
  for (size_t d = 0; d < made.factors.size(); ++d) {
    if (made.factors[d] * static_cast<double>(made.from[d]) < 1) made.factors[d] = 1;
  }
  return made;
}

ReadModel written_onnx(const Interpolation& how, const at::Tensor& x) {
  return read_onnx(exchange::export_onnx(*how.captured(x)));
}

/// Of images of a width of 1.
std::vector<int64_t> picked_by_libtorch(int64_t from, int64_t to, std::optional<double> factor = {}) {
  const at::Tensor places = torch::arange(from, torch::kFloat).view({1, 1, from, 1});
  const at::Tensor ids = at::upsample_nearest2d(places, {to, 1}, factor).to(torch::kLong).contiguous();
  return {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + to};
}

/// How far two blends can be apart. A place is a product and a difference in f32 of a rounded step, so it is
/// within 1.5 epsilons of the size, on both sides; neighbours are at most twice the largest number apart.
/// Two products and a sum are rounded, too.
double blend_rounding(const Interpolation& how, const at::Tensor& x) {
  constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
  double epsilons = 0;
  for (const int64_t size : how.from) epsilons += 2 * 2 * 1.5 * static_cast<double>(size) + 2 * 3 * 0.5;
  return epsilons * kEpsilon * x.abs().max().item<double>();
}

/// What comes of `x`: picks are the same elements, blends the same numbers within rounding.
void expect_same(const Interpolation& how, const at::Tensor& x, const at::Tensor& ours,
                 const at::Tensor& theirs) {
  ASSERT_EQ(ours.sizes(), theirs.sizes()) << how.words();
  EXPECT_LE((ours.to(at::kDouble) - theirs).abs().max().item<double>(),
            how.linear ? blend_rounding(how, x) : 0)
      << how.words();
}

}  // namespace

TEST(ExportResize, AFactorIsWrittenAsOne) {
  const Interpolation how{.from = {9, 21}, .factors = {1.7, 0.6}, .sizes = {}, .linear = true};
  const ReadModel model = written_onnx(how, how.image());
  ASSERT_EQ(model.nodes.size(), 1U);
  EXPECT_EQ(model.nodes[0].op, "Resize");
  ASSERT_EQ(model.nodes[0].inputs.size(), 3U);
  EXPECT_EQ(model.initializers.at(model.nodes[0].inputs[2]).as<float>(),
            (std::vector<float>{1, 1, 1.7F, 0.6F}));
  EXPECT_EQ(model.nodes[0].attributes.at("coordinate_transformation_mode").s, "half_pixel");
}

TEST(ExportResize, WholeFactorsAndSizesAreWrittenAsSizes) {
  for (const Interpolation& how :
       {Interpolation{.from = {8, 6}, .factors = {2, 1.5}, .sizes = {}, .linear = true},
        Interpolation{.from = {8, 6}, .factors = {}, .sizes = {11, 1}, .linear = true},
        Interpolation{.from = {8, 6}, .factors = {2, 3}, .sizes = {}}}) {
    const ReadModel model = written_onnx(how, how.image());
    ASSERT_EQ(model.of("Resize").size(), 1U) << how.words();
    const ReadNode made = model.of("Resize")[0];
    EXPECT_EQ(made.inputs.size(), 4U) << how.words();
    EXPECT_NE(made.attributes.at("coordinate_transformation_mode").s, "pytorch_half_pixel")
        << "another number for one pixel";
  }
}

TEST(ExportResize, WhatOnnxRuntimeRoundsOtherwiseIsPicked) {
  // 25 to 60: element 12 * (25 / 60) is 5 by LibTorch, 12 / (60 / 25) is 4.9999 by ONNX Runtime.
  const Interpolation to_sizes{.from = {25, 4}, .factors = {}, .sizes = {60, 8}};
  const ReadModel model = written_onnx(to_sizes, to_sizes.image());
  const ReadNode resize = model.of("Resize").at(0), rows = *model.maker(resize.inputs.at(0));
  EXPECT_EQ(rows.op, "Gather");
  EXPECT_EQ(rows.attributes.at("axis").i, 2);
  EXPECT_EQ(model.initializers.at(rows.inputs.at(1)).as<int64_t>(), picked_by_libtorch(25, 60));
  // It leaves an axis that keeps its size as it is, whatever the factor.
  const Interpolation kept{.from = {6, 6}, .factors = {1.15, 1.15}, .sizes = {}, .linear = true};
  EXPECT_TRUE(written_onnx(kept, kept.image()).of("Resize").empty());
}

TEST(ExportResize, OnnxFilesOfRandomCasesComeBackTheSame) {
  const torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    Draw draw(seed);
    const Interpolation how = drawn(draw, static_cast<size_t>(draw.between(1, 3)));
    const at::Tensor x = how.image();
    const Module module = how.captured(x);
    const auto back = exchange::import_onnx(exchange::export_onnx(*module), "model.onnx");
    expect_same(how, x, module->forward(x), back->forward(x));
  }
}

/// Bicubic, antialiased and nearest-exact resizes of drawn images.
TEST(ExportResize, OnnxFilesOfOtherRulesComeBackTheSame) {
  const torch::NoGradGuard no_grad;
  const std::vector<std::pair<std::string, std::function<void(F::InterpolateFuncOptions&)>>> rules = {
      {"bicubic", [](auto& options) { options.mode(torch::kBicubic).align_corners(false); }},
      {"bicubic by corners", [](auto& options) { options.mode(torch::kBicubic).align_corners(true); }},
      {"antialiased",
       [](auto& options) { options.mode(torch::kBilinear).align_corners(false).antialias(true); }},
      {"antialiased bicubic",
       [](auto& options) { options.mode(torch::kBicubic).align_corners(false).antialias(true); }},
      {"nearest-exact", [](auto& options) { options.mode(torch::kNearestExact); }}};
  for (const auto& [name, rule] : rules) {
    for (uint64_t seed = 0; seed < 30; ++seed) {
      Draw draw(seed);
      Interpolation how = drawn(draw, 2);
      how.linear = false;
      F::InterpolateFuncOptions options = how.options();
      rule(options);
      if (name.starts_with("antialiased") && !how.sizes.empty() && how.sizes[1] == 1) continue;  // refused
      if (name.starts_with("antialiased") && !how.factors.empty() &&
          how.factors[1] * static_cast<double>(how.from[1]) < 2)
        continue;
      const at::Tensor x = how.image();
      const Module module =
          captured_function([=](const at::Tensor& one) { return F::interpolate(one, options); }, x);
      const at::Tensor right = module->forward(x);
      for (const int64_t opset : {17, 21}) {
        const auto back =
            exchange::import_onnx(exchange::export_onnx(*module, {.opset = opset}), "model.onnx");
        const at::Tensor ours = back->forward(x);
        ASSERT_EQ(ours.sizes(), right.sizes()) << name << ' ' << how.words();
        const double most = name == "nearest-exact" ? 0 : 2 * blend_rounding(how, x);
        EXPECT_LE((ours.to(at::kDouble) - right).abs().max().item<double>(), most)
            << name << ' ' << how.words();
      }
    }
  }
}

TEST(ExportResize, AntialiasIsWrittenAsProducts) {
  const auto options = F::InterpolateFuncOptions()
                           .size(std::vector<int64_t>{3, 9})
                           .mode(torch::kBilinear)
                           .antialias(true)
                           .align_corners(false);
  const Module module = captured_function([=](const at::Tensor& one) { return F::interpolate(one, options); },
                                          torch::randn({2, 3, 8, 6}));
  const ReadModel model = read_onnx(exchange::export_onnx(*module));
  EXPECT_TRUE(model.of("Resize").empty()) << "ONNX Runtime's has other numbers";
  EXPECT_EQ(model.of("MatMul").size(), 2U);
}

TEST(ExportResize, BicubicKeepsItsRule) {
  const auto options =
      F::InterpolateFuncOptions().size(std::vector<int64_t>{3, 9}).mode(torch::kBicubic).align_corners(true);
  const Module module = captured_function([=](const at::Tensor& one) { return F::interpolate(one, options); },
                                          torch::randn({2, 3, 8, 6}));
  const ReadNode resize = read_onnx(exchange::export_onnx(*module)).of("Resize").at(0);
  EXPECT_EQ(resize.attributes.at("mode").s, "cubic");
  EXPECT_EQ(resize.attributes.at("cubic_coeff_a").f, -0.75F);
  EXPECT_EQ(resize.attributes.at("coordinate_transformation_mode").s, "align_corners");
}

TEST(ExportResize, HalvesAreResizedAlike) {
  const torch::NoGradGuard no_grad;
  for (const double factor : {1.7, 1.15, 0.6}) {
    const Interpolation how{.from = {6, 9}, .factors = {factor, factor}, .sizes = {}, .linear = true};
    const at::Tensor x = how.image();
    const Module module = how.captured(x);
    const std::string bytes = exchange::export_onnx(*module, {.fp16 = true});
    EXPECT_LE(relative_difference(module->forward(x), exchange::import_onnx(bytes, "model.onnx")->forward(x)),
              5e-3);
  }
}

TEST(ExportResize, TensorFlowLiteFilesOfRandomCasesGiveTheSame) {
  const torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    Draw draw(seed);
    const Interpolation how = drawn(draw, 2);
    const at::Tensor x = how.image();
    const Module module = how.captured(x);
    const auto file = read_tflite(exchange::export_tflite(*module, {.batch = 2}));
    expect_same(how, x, channels_last(module->forward(x)), TfliteRun(*file).run({channels_last(x)}).at(0));
  }
}

TEST(ExportResize, CodesArePickedAsCodes) {
  auto net = std::make_shared<FunctionNet>();
  auto first = net->register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)));
  auto last = net->register_module("last", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 2, 1)));
  net->body = [=](const at::Tensor& x) mutable {
    const auto options =
        F::InterpolateFuncOptions().scale_factor(std::vector<double>{1.7, 1.7}).recompute_scale_factor(false);
    return last->forward(F::interpolate(torch::relu(first->forward(x)), options));
  };
  const at::Tensor x = torch::randn({4, 3, 8, 8});
  const auto prepared = quant::prepare(captured_net(net, x), quant::Recipe::tflite_int8());
  prepared->forward(x);
  const auto file = read_tflite(exchange::export_tflite(*quant::convert(prepared), {.integer_io = true}));
  constexpr int kGather = 36;
  ASSERT_EQ(file->of(kGather).size(), 2U);
  for (const TfliteOperator& op : file->of(kGather)) {
    EXPECT_EQ(file->output(op).type, kInt8Type);
    EXPECT_EQ(file->output(op).scale, file->input(op, 0).scale);
    std::vector<int64_t> ids;
    for (const int32_t id : file->input(op, 1).as<int32_t>()) ids.push_back(id);
    EXPECT_EQ(ids, (picked_by_libtorch(8, 13, 1.7)));
  }
}

TEST(ExportResize, EnginesOfRandomCasesGiveTheSame) {
  const torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Draw draw(seed);
    Interpolation how = drawn(draw, static_cast<size_t>(draw.between(1, 3)));
    // Small factors keep sizes, and those a little above 2 double them.
    if (!how.factors.empty() && draw.coin())
      how.factors[0] = draw.one_of({1.0, 2.0}) + static_cast<double>(draw.between(1, 20)) / 100;
    const at::Tensor x = how.image();
    const Module module = how.captured(x);
    expect_same(how, x, module->forward(x), lower_partitioned(*module).run({x}).at(0));
  }
}

TEST(ExportResize, CoreMlProgramsOfRandomCasesGiveTheSame) {
  const torch::NoGradGuard no_grad;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Draw draw(seed);
    const Interpolation how = drawn(draw, 2);
    const at::Tensor x = how.image();
    const Module module = how.captured(x);
    const TemporaryFolder folder;
    exchange::export_coreml(*module, folder / "m.mlpackage", {.batch = 2});
    const MilModel model = read_coreml(folder / "m.mlpackage");
    expect_same(how, x, module->forward(x), MilRun(model).run(x));
  }
}

}  // namespace ulp::test
