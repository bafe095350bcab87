#include "ulp/quant/analysis/sensitivity.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "error_of.h"
#include "residual_net.h"
#include "ulp/graph/capture/capture.h"

namespace ulp::quant {
namespace {

using test::data;
using test::make_net;
using test::Net;

std::shared_ptr<PreparedModule> calibrated(const std::shared_ptr<graph::GraphModule>& captured,
                                           const Recipe& recipe) {
  const at::NoGradGuard no_grad;
  auto prepared = prepare(captured, recipe);
  for (uint64_t seed = 1; seed <= 3; ++seed) prepared->forward(data(seed, 16));
  return prepared;
}

/// Two bits for one layer's weight make it the worst one.
Recipe with_coarse(const std::string& module) {
  Recipe recipe = Recipe::x86_int8();
  TensorRecipe two_bits = recipe.weight;
  two_bits.scheme.bits = 2;
  recipe.overrides.push_back({.op = {}, .module = module, .value = {}, .activation = {}, .weight = two_bits});
  return recipe;
}

TEST(Sensitivity, FindsTheWorstLayer) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  const Sensitivity found = sensitivity(calibrated(captured, with_coarse("block1.conv1")), {data(40, 8)});
  ASSERT_EQ(found.layers.size(), 7U);  // every layer of the network
  EXPECT_EQ(found.layers[0].layer, "block1.conv1 + relu");
  EXPECT_LT(found.layers[0].error.sqnr_db, found.layers[1].error.sqnr_db - 6);
  const auto by_sqnr = [](const auto& a, const auto& b) { return a.error.sqnr_db < b.error.sqnr_db; };
  EXPECT_TRUE(std::is_sorted(found.layers.begin(), found.layers.end(), by_sqnr));
}

TEST(Sensitivity, OneLayerIsWhatARecipeThatSkipsTheOthersGives) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  const Sensitivity found = sensitivity(calibrated(captured, Recipe::x86_int8()), {data(40, 8)});
  for (const LayerSensitivity& layer : found.layers) {
    Recipe alone = Recipe::x86_int8();
    alone.ops = {"conv2d", "linear"};
    const size_t add = layer.layer.find(" + add");
    if (add != std::string::npos) continue;  // the sum's other operand is rounded, too
    for (const LayerSensitivity& other : found.layers) {
      if (other.value != layer.value) alone.skip_values.push_back(other.value);
    }
    const auto prepared = calibrated(captured, alone);
    const at::NoGradGuard no_grad;
    captured->eval();
    const at::Tensor x = data(40, 8);
    const QuantError error = quantization_error(captured->forward(x), convert(prepared)->forward(x));
    // The last layer's input is found behind an average of float or of rounded numbers.
    EXPECT_NEAR(layer.error.sqnr_db, error.sqnr_db, 0.5) << layer.layer;
  }
}

TEST(Sensitivity, LeavingTheWorstInFloatHelps) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  Recipe recipe = with_coarse("block1.conv1");
  const Sensitivity found = sensitivity(calibrated(captured, recipe), {data(40, 8)});
  const auto error = [&](const Recipe& one) {
    const at::NoGradGuard no_grad;
    const auto converted = convert(calibrated(captured, one));
    captured->eval();
    return quantization_error(captured->forward(data(41, 8)), converted->forward(data(41, 8))).sqnr_db;
  };
  const double before = error(recipe);
  recipe.skip_values = found.worst(1);
  ASSERT_EQ(recipe.skip_values.size(), 1U);
  EXPECT_GT(error(recipe), before + 6);
  EXPECT_TRUE(found.worst(0).empty());
  EXPECT_EQ(found.worst(1000).size(), found.layers.size());
}

TEST(Sensitivity, ScoresTheFloatModelAndEachLayer) {
  Net net = make_net();
  const auto captured = capture(net, {data(1, 4)});
  int64_t asked = 0, last = 0;
  const Sensitivity found =
      sensitivity(calibrated(captured, Recipe::x86_int8()), {data(40, 4)},
                  {.score = [&](graph::GraphModule&) { return static_cast<double>(asked++); },
                   .progress =
                       [&](int64_t done, int64_t total) {
                         EXPECT_EQ(done, last + 1);
                         EXPECT_EQ(total, 7);
                         last = done;
                       }});
  EXPECT_EQ(found.float_score, 0.0);
  EXPECT_EQ(asked, 8);
  for (const LayerSensitivity& layer : found.layers) EXPECT_GE(layer.score.value(), 1.0);
}

TEST(Sensitivity, NeedsCalibration) {
  Net net = make_net();
  const auto prepared = prepare(capture(net, {data(1, 4)}), Recipe::x86_int8());
  EXPECT_ERROR(sensitivity(prepared, {data(1, 4)}), "expected every observer to have seen data");
  EXPECT_ERROR(sensitivity(nullptr, {}), "got null");
}

}  // namespace
}  // namespace ulp::quant
