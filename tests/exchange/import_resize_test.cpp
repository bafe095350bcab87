// Resize and Upsample of ONNX files beside ONNX's formulas, pixel by pixel, and beside numbers of ONNX Runtime 1.31.1.
#include <torch/torch.h>

#include <cmath>

#include "error_of.h"
#include "onnx_case.h"

namespace ulp::test {

namespace {

/// What is drawn of one Resize: along rows and columns.
struct DrawnResize {
  std::string mode, place, rounding;
  std::vector<int64_t> in;
  std::vector<float> scales;   ///< empty: sizes
  std::vector<int64_t> sizes;  ///< of the result
};

float place_of(const DrawnResize& drawn, float scale, int64_t in, int64_t out, int64_t i) {
  const auto at = static_cast<float>(i);
  if (drawn.place == "asymmetric") return at / scale;
  if (drawn.place == "align_corners")
    return out == 1 ? 0 : at * static_cast<float>(in - 1) / static_cast<float>(out - 1);
  if (drawn.place == "pytorch_half_pixel" && out == 1) return 0;
  return (at + 0.5F) / scale - 0.5F;
}

int64_t pixel_of(const std::string& rounding, float place) {
  if (rounding == "floor") return static_cast<int64_t>(std::floor(place));
  if (rounding == "ceil") return static_cast<int64_t>(std::ceil(place));
  return static_cast<int64_t>(rounding == "round_prefer_floor" ? std::ceil(place - 0.5F)
                                                               : std::floor(place + 0.5F));
}

double keys(double t, double a = -0.75) {
  t = std::abs(t);
  if (t <= 1) return (a + 2) * t * t * t - (a + 3) * t * t + 1;
  return t < 2 ? a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a : 0;
}

/// The shares [in, out] of one dimension.
at::Tensor shares_of(const DrawnResize& drawn, float scale, int64_t in, int64_t out) {
  const at::Tensor shares = torch::zeros({in, out}, torch::kDouble);
  auto at = shares.accessor<double, 2>();
  const auto add = [&](int64_t pixel, int64_t i, double share) {
    at[std::clamp<int64_t>(pixel, 0, in - 1)][i] += share;
  };
  for (int64_t i = 0; i < out; ++i) {
    float place = place_of(drawn, scale, in, out, i);
    if (drawn.mode == "nearest") {
      add(pixel_of(drawn.rounding, place), i, 1);
      continue;
    }
    if (drawn.mode == "linear") place = std::clamp(place, 0.0F, static_cast<float>(in - 1));
    const double low = std::floor(place), behind = place - low;
    if (drawn.mode == "linear") {
      add(static_cast<int64_t>(low), i, 1 - behind);
      add(static_cast<int64_t>(low) + 1, i, behind);
    } else {
      for (int64_t k = -1; k <= 2; ++k)
        add(static_cast<int64_t>(low) + k, i, keys(static_cast<double>(k) - behind));
    }
  }
  return shares;
}

at::Tensor right_of(const DrawnResize& drawn, const at::Tensor& x) {
  at::Tensor y = x.to(torch::kDouble);
  for (size_t d = 2; d < drawn.in.size(); ++d) {
    const float scale = drawn.scales.empty()
                            ? static_cast<float>(drawn.sizes[d]) / static_cast<float>(drawn.in[d])
                            : drawn.scales[d];
    const at::Tensor shares = shares_of(drawn, scale, drawn.in[d], drawn.sizes[d]);
    const auto dim = static_cast<int64_t>(d);
    y = y.transpose(dim, -1).matmul(shares).transpose(dim, -1);
  }
  return y;
}

OnnxCase file_of(const DrawnResize& drawn, const std::vector<int64_t>& sizes_of_input) {
  OnnxCase file;
  file.input("x", sizes_of_input);
  std::vector<std::string> inputs = {"x", "", drawn.scales.empty() ? "" : "numbers"};
  if (drawn.scales.empty()) {
    inputs.push_back("numbers");
    file.tensor("numbers", torch::tensor(drawn.sizes));
  } else {
    file.tensor("numbers", torch::tensor(drawn.scales));
  }
  file.node("Resize", inputs, {"y"},
            {{"mode", drawn.mode},
             {"coordinate_transformation_mode", drawn.place},
             {"nearest_mode", drawn.rounding}});
  return file.output("y");
}

DrawnResize drawn_resize(Drawn& drawn) {
  DrawnResize one;
  one.mode = drawn.one_of<std::string>({"nearest", "linear", "cubic"});
  one.place = drawn.one_of<std::string>({"asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"});
  one.rounding = drawn.one_of<std::string>({"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"});
  const int64_t dims = one.mode == "cubic" ? 2 : drawn.whole(1, 3);
  const bool by_scales = drawn.whole(0, 1) == 0;
  one.in = {1, 2};
  one.sizes = {1, 2};
  if (by_scales) one.scales = {1, 1};
  for (int64_t d = 0; d < dims; ++d) {
    one.in.push_back(drawn.whole(1, 9));
    const float scale =
        drawn.one_of<float>({0.3F, 0.5F, 0.6F, 1.15F, 1.25F, 1.4F, 1.5F, 1.7F, 2, 2.2F, 2.3F, 3});
    const auto by_scale = static_cast<int64_t>(scale * static_cast<float>(one.in.back()));
    one.sizes.push_back(by_scales ? by_scale : drawn.whole(1, 14));
    if (by_scales) one.scales.push_back(scale);
  }
  return one;
}

/// Of [1, 2, time] at several times; false where the file is refused.
bool follows_free_sizes(DrawnResize one) {
  std::shared_ptr<graph::GraphModule> module;
  try {
    module = file_of(one, {-1, 2, -2}).import();
  } catch (const Error& error) {
    EXPECT_SAYS(std::string(error.what()), "runtimes");  // round to either side
    return false;
  }
  for (const int64_t in : {2, 3, 7, 10, 25, 40, 63}) {
    one.in.back() = in;
    one.sizes.back() = static_cast<int64_t>(one.scales.back() * static_cast<float>(in));
    const at::Tensor x = torch::randn(one.in);
    EXPECT_LT(share_off(module->forward(x), right_of(one, x)), 1e-5)
        << one.mode << " by " << one.place << " and " << one.rounding << ", " << one.scales.back() << " of "
        << in;
  }
  return true;
}

}  // namespace

TEST(ImportResize, GivesTheFormulaForEveryModeAndFactor) {
  torch::manual_seed(1);
  Drawn drawn(7);
  int compared = 0;
  for (int i = 0; i < 400; ++i) {
    const DrawnResize one = drawn_resize(drawn);
    if (std::ranges::find(one.sizes, 0) != one.sizes.end()) continue;
    const at::Tensor x = torch::randn(one.in);
    try {
      EXPECT_LT(share_off(file_of(one, one.in).run({x}), right_of(one, x)), 1e-5)
          << one.mode << " by " << one.place << " and " << one.rounding << ", " << one.in << " to "
          << one.sizes << " by " << one.scales;
      ++compared;
    } catch (const Error& error) {
      EXPECT_SAYS(std::string(error.what()), "runtimes");  // round to either side
    }
  }
  EXPECT_GT(compared, 250);
}

/// Before version 11 pixels lie where the factor alone says; the nearest is below, or above where it shrinks.
TEST(ImportResize, OldVersionsGiveTheFormulaForRandomFactors) {
  torch::manual_seed(2);
  Drawn drawn(11);
  for (int i = 0; i < 80; ++i) {
    const int64_t opset = drawn.one_of<int64_t>({7, 9, 10});
    const bool shrinks = opset == 10 && drawn.whole(0, 1) == 0;
    DrawnResize one{.mode = drawn.one_of<std::string>({"nearest", "linear"}),
                    .place = "asymmetric",
                    .rounding = shrinks ? "ceil" : "floor",
                    .in = {1, 2},
                    .scales = {1, 1},
                    .sizes = {1, 2}};
    for (int64_t d = drawn.whole(1, 2); d > 0; --d) {
      one.in.push_back(drawn.whole(2, 9));
      one.scales.push_back(shrinks ? drawn.one_of<float>({0.5F, 0.6F, 0.75F, 0.9F})
                                   : drawn.one_of<float>({1, 1.25F, 1.5F, 1.7F, 2, 2.3F, 3}));
      one.sizes.push_back(static_cast<int64_t>(one.scales.back() * static_cast<float>(one.in.back())));
    }
    OnnxCase file;
    file.input("x", one.in);
    const std::string op = opset == 10 ? "Resize" : "Upsample";
    if (opset == 7) {
      file.node(op, {"x"}, {"y"}, {{"mode", one.mode}, {"scales", one.scales}});
    } else {
      file.tensor("s", torch::tensor(one.scales)).node(op, {"x", "s"}, {"y"}, {{"mode", one.mode}});
    }
    const at::Tensor x = torch::randn(one.in);
    file.output("y");
    if (one.in == one.sizes && std::ranges::any_of(one.scales, [](float scale) { return scale != 1; })) {
      EXPECT_ERROR(file.import(opset), "by which runtimes differ");
      continue;
    }
    EXPECT_LT(share_off(file.run({x}, opset), right_of(one, x)), 1e-5)
        << op << ' ' << one.mode << ", " << one.in << " by " << one.scales << ", opset " << opset;
  }
}

/// A result's pixel as wide as several of the input: LibTorch's, too, leaves out what lies outside. Its
/// results of one column are other numbers.
TEST(ImportResize, AntialiasOfRandomSizesIsLibTorchs) {
  torch::manual_seed(3);
  Drawn drawn(13);
  for (int i = 0; i < 60; ++i) {
    const bool cubic = drawn.whole(0, 1) == 0;
    const std::vector<int64_t> in = {1, 2, drawn.whole(1, 12), drawn.whole(1, 12)};
    const std::vector<int64_t> out = {1, 2, drawn.whole(1, 14), drawn.whole(2, 14)};
    OnnxCase file;
    file.input("x", in).tensor("sizes", torch::tensor(out));
    file.node("Resize", {"x", "", "", "sizes"}, {"y"},
              {{"mode", cubic ? "cubic" : "linear"},
               {"antialias", 1},
               {"exclude_outside", 1},
               {"cubic_coeff_a", -0.5F}});
    const at::Tensor x = torch::randn(in);
    const at::IntArrayRef to = {out[2], out[3]};
    const at::Tensor right =
        cubic ? at::_upsample_bicubic2d_aa(x, to, false) : at::_upsample_bilinear2d_aa(x, to, false);
    EXPECT_LT(share_off(file.output("y").run({x}), right), 2e-5)
        << (cubic ? "cubic " : "linear ") << in << " to " << out;
  }
}

/// Linear to one pixel is its middle by half_pixel, and pixel 0 by pytorch_half_pixel.
TEST(ImportResize, OnePixelOfRandomSizes) {
  torch::manual_seed(4);
  Drawn drawn(17);
  for (int i = 0; i < 40; ++i) {
    const std::string place =
        drawn.one_of<std::string>({"half_pixel", "pytorch_half_pixel", "align_corners"});
    DrawnResize one{.mode = "linear",
                    .place = place,
                    .rounding = "floor",
                    .in = {1, 2, drawn.whole(1, 12), drawn.whole(1, 12)},
                    .scales = {},
                    .sizes = {1, 2, 1, drawn.one_of<int64_t>({1, 1, 2, 5})}};
    if (place == "half_pixel" && drawn.whole(0, 1) == 0)
      one.scales = {1, 1, 1.4F / static_cast<float>(one.in[2]),
                    (static_cast<float>(one.sizes[3]) + 0.4F) / static_cast<float>(one.in[3])};
    const at::Tensor x = torch::randn(one.in);
    EXPECT_LT(share_off(file_of(one, one.in).run({x}), right_of(one, x)), 1e-5)
        << place << ", " << one.in << " to " << one.sizes << " by " << one.scales;
  }
}

TEST(ImportResize, FactorsFollowFreeSizes) {
  torch::manual_seed(1);
  int followed = 0;
  for (const float scale : {0.5F, 0.6F, 1.5F, 1.7F, 2.0F, 2.3F}) {
    DrawnResize one{.mode = "linear",
                    .place = "half_pixel",
                    .rounding = "floor",
                    .in = {1, 2, 0},
                    .scales = {1, 1, scale},
                    .sizes = {1, 2, 0}};
    followed += follows_free_sizes(one) ? 1 : 0;
    one.mode = "nearest";
    for (const std::string place : {"asymmetric", "half_pixel"}) {
      for (const std::string rounding : {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"}) {
        one.place = place;
        one.rounding = rounding;
        followed += follows_free_sizes(one) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(followed, 40);  // of 54
}

TEST(ImportResize, WhatFollowsFreeSizesOtherwiseIsRefusedByName) {
  DrawnResize one{.mode = "linear",
                  .place = "pytorch_half_pixel",
                  .rounding = "floor",
                  .in = {},
                  .scales = {1, 1, 0.5F},
                  .sizes = {}};
  EXPECT_ERROR(file_of(one, {-1, 2, -2}).import(),
               "node 'the_Resize' (Resize): expected an input whose sizes are numbers");
  for (const std::string mode : {"nearest", "linear"}) {
    one = {.mode = mode, .place = "half_pixel", .rounding = "floor", .in = {}, .scales = {}, .sizes = {}};
    one.scales = {1, 1, 1.25F};
    EXPECT_ERROR(file_of(one, {-1, 2, -2}).import(),
                 "expected a factor of 1.5 or more, or an input whose sizes");
  }
}

// x = [[0, 1, 2, 3], [4, 5, 6, 7], ...] of 4 x 4; results of ONNX Runtime 1.31.1.
TEST(ImportResize, GivesTheNumbersOfOnnxRuntime) {
  const at::Tensor x = torch::arange(16).to(torch::kFloat).view({1, 1, 4, 4});
  const auto resized = [&](const OnnxAttributes& attributes, const std::vector<int64_t>& sizes) {
    OnnxCase file;
    file.input("x", {1, 1, 4, 4}).tensor("sizes", torch::tensor(sizes));
    return file.node("Resize", {"x", "", "", "sizes"}, {"y"}, attributes).output("y").run({x}).flatten();
  };
  EXPECT_LT(share_off(resized({{"mode", "linear"}, {"antialias", 1}}, {1, 1, 2, 2}),
                      torch::tensor({3.125F, 4.875F, 10.125F, 11.875F})),
            1e-6);
  EXPECT_LT(share_off(resized({{"mode", "cubic"}, {"antialias", 1}, {"cubic_coeff_a", -0.5F}}, {1, 1, 3, 2}),
                      torch::tensor({1.252423F, 3.213361F, 6.519532F, 8.48047F, 11.78664F, 13.74758F})),
            1e-6);
  EXPECT_LT(share_off(resized({{"mode", "linear"}, {"coordinate_transformation_mode", "pytorch_half_pixel"}},
                              {1, 1, 1, 3}),
                      torch::tensor({0.1666667F, 1.5F, 2.833333F})),
            1e-6);
  EXPECT_LT(share_off(resized({{"mode", "cubic"}, {"exclude_outside", 1}}, {1, 1, 3, 3}),
                      torch::tensor({0.5804043F, 1.964324F, 3.348242F, 6.11608F, 7.5F, 8.883919F, 11.65176F,
                                     13.03568F, 14.4196F})),
            1e-6);
}

TEST(ImportResize, OldVersionsPickAsOnnxRuntime) {
  const at::Tensor x = torch::arange(5).to(torch::kFloat).view({1, 1, 5});
  const auto with = [&](const std::string& op, const std::vector<float>& scales, int64_t opset,
                        const std::string& mode = "nearest") {
    OnnxCase file;
    file.input("x", {1, 1, 5});
    if (opset == 7) {
      file.node(op, {"x"}, {"y"}, {{"mode", mode}, {"scales", scales}});
    } else {
      file.tensor("s", torch::tensor(scales)).node(op, {"x", "s"}, {"y"}, {{"mode", mode}});
    }
    return file.output("y").run({x}, opset).flatten();
  };
  const auto expect = [](const at::Tensor& ours, const std::vector<float>& right) {
    EXPECT_LT(share_off(ours, torch::tensor(right)), 1e-6) << ours;
  };
  expect(with("Upsample", {1, 1, 1.5F}, 9), {0, 0, 1, 2, 2, 3, 4});
  expect(with("Upsample", {1, 1, 2}, 7), {0, 0, 1, 1, 2, 2, 3, 3, 4, 4});
  expect(with("Resize", {1, 1, 0.6F}, 10), {0, 2, 4});  // up where it shrinks
  expect(with("Upsample", {1, 1, 1.5F}, 9, "linear"), {0, 2 / 3.0F, 4 / 3.0F, 2, 8 / 3.0F, 10 / 3.0F, 4});
}

TEST(ImportResize, SidesKeepTheirProportion) {
  OnnxCase file;
  file.input("x", {1, 1, 2, 4}).tensor("sizes", torch::tensor({3, 10}));
  file.node("Resize", {"x", "", "", "sizes"}, {"y"},
            {{"axes", std::vector<int64_t>{2, 3}},
             {"keep_aspect_ratio_policy", "not_larger"},
             {"coordinate_transformation_mode", "asymmetric"},
             {"nearest_mode", "floor"}});
  const at::Tensor y = file.output("y").run({torch::arange(8).to(torch::kFloat).view({1, 1, 2, 4})});
  EXPECT_TRUE(torch::equal(y.squeeze(), torch::tensor({{0.0F, 0.0F, 1.0F, 2.0F, 2.0F, 3.0F},
                                                       {0.0F, 0.0F, 1.0F, 2.0F, 2.0F, 3.0F},
                                                       {4.0F, 4.0F, 5.0F, 6.0F, 6.0F, 7.0F}})));
}

TEST(ImportResize, APixelThatRuntimesRoundToEitherSideIsRefused) {
  OnnxCase file;
  file.input("x", {1, 1, 30}).tensor("s", torch::tensor({1.0F, 1.0F, 0.3F}));
  file.node("Resize", {"x", "", "s"}, {"y"}, {{"nearest_mode", "round_prefer_ceil"}}).output("y");
  EXPECT_ERROR(file.import(), "which runtimes round to either side");
}

}  // namespace ulp::test
