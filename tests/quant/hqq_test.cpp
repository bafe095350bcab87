// Half-quadratic quantization beside its definition (tests/golden/make_hqq.py), and in models.
#include "ulp/quant/weights/hqq.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "error_of.h"
#include "golden_data.h"
#include "small_bert.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::quant {
namespace {

using at::Tensor;
using nlohmann::json;

Tensor hqq_golden_weight(int64_t rows, int64_t columns) {
  const int64_t count = rows * columns;
  Tensor sum = at::zeros({count}, at::kDouble);
  for (uint64_t seed = 1; seed <= 4; ++seed)
    sum += torch::tensor(test::uniform(seed, count)).to(at::kDouble) - 0.5;
  sum.slice(0, 0, count, 11).mul_(6);
  return sum.to(at::kFloat).view({rows, columns});
}

double lp_error(const Tensor& weight, const Tensor& rounded) {
  return (weight.to(at::kDouble) - rounded.to(at::kDouble)).abs().pow(0.7).sum().item<double>();
}

WeightOnlyRecipe hqq_recipe(int64_t bits, int64_t group, bool affine) {
  return {.bits = bits, .group = group, .affine = affine, .method = WeightMethod::hqq};
}

TEST(Hqq, IsItsDefinition) {
  const json file = json::parse(std::ifstream(ULP_SOURCE_DIR "/tests/golden/hqq.json"));
  const Tensor weight = hqq_golden_weight(file["rows"], file["columns"]);
  int compared = 0;
  for (const json& one : file["cases"]) {
    const std::string name = one["bits"].dump() + '/' + one["group"].dump();
    const StoredQuantizedWeight got =
        hqq_weight(weight, hqq_recipe(one["bits"], one["group"], one["affine"]));
    const Tensor values = dequantize_weight(got);
    // Sums in another order may round a parameter otherwise, by a part in 2^23 of it.
    const Tensor scale =
        torch::tensor(one["scale"].get<std::vector<double>>(), at::kDouble).view({weight.size(0), -1});
    EXPECT_TRUE(at::allclose(got.scale.view(scale.sizes()).to(at::kDouble), scale, 1e-6, 0)) << name;
    const Tensor minimum =
        torch::tensor(one["minimum"].get<std::vector<double>>(), at::kDouble).view(scale.sizes());
    EXPECT_EQ(got.minimum.has_value(), one["affine"].get<bool>()) << name;
    if (got.minimum) EXPECT_TRUE(at::allclose(got.minimum->to(at::kDouble), minimum, 1e-6, 1e-7)) << name;
    const int64_t columns = weight.size(1), groups = scale.size(1);
    const int64_t size = one["group"] == -1 ? columns : one["group"].get<int64_t>();
    std::vector<float> want;
    for (int64_t row = 0; row < weight.size(0); ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t place = row * groups + column / size;
        want.push_back(one["codes"][row][column].get<float>() * scale.view(-1)[place].item<float>() -
                       minimum.view(-1)[place].item<float>());
      }
    }
    EXPECT_TRUE(at::allclose(values, torch::tensor(want).view_as(weight), 1e-5, 1e-6)) << name;
    EXPECT_NEAR(lp_error(weight, values), one["error"].get<double>(), 1e-4 * one["error"].get<double>())
        << name;
    if (!one.contains("package")) continue;
    EXPECT_LE(lp_error(weight, values), 1.0001 * one["package"].get<double>()) << name;
    ++compared;
  }
  EXPECT_GE(compared, 4);
}

TEST(Hqq, IsNeverFartherThanPlainRoundingInItsNorm) {
  torch::manual_seed(3);
  for (int round = 0; round < 40; ++round) {
    const int64_t rows = 1 + round % 4, columns = 2 + (round * 7) % 61;
    Tensor weight = at::randn({rows, columns}) * std::pow(10.0, round % 7 - 3);
    if (round % 5 == 0) weight[0].zero_();
    if (round % 5 == 1) weight[0].fill_(-0.3);
    for (const int64_t bits : {2, 3, 4, 8}) {
      for (const int64_t group : {-1, 2, 16}) {
        const WeightOnlyRecipe recipe = hqq_recipe(bits, group, false);
        const Tensor values = dequantize_weight(hqq_weight(weight, recipe));
        EXPECT_TRUE(at::isfinite(values).all().item<bool>());
        const Tensor plain = quantize_dequantize(weight, qparams_of(weight, recipe.scheme()));
        EXPECT_LE(lp_error(weight, values), lp_error(weight, plain) * 1.001 + 1e-30) << bits << '/' << group;
        if (bits == 8) continue;
        const Tensor affine = dequantize_weight(hqq_weight(weight, hqq_recipe(bits, group, true)));
        EXPECT_TRUE(at::isfinite(affine).all().item<bool>());
        // No number is farther than the range of its group.
        EXPECT_LE((affine - weight).abs().max().item<double>(),
                  (weight.max() - weight.min()).item<double>() + 1e-6 * weight.abs().max().item<double>());
      }
    }
  }
}

TEST(Hqq, ModelsTakeItWithoutData) {
  const auto captured = captured_bert(32, 48);
  const Tensor ids = at::randint(0, 256, {3, 9});
  const Tensor expected = captured->forward(ids);
  for (const bool affine : {false, true}) {
    const auto model = quantize_weights(captured, hqq_recipe(4, 16, affine));
    const auto plain = quantize_weights(captured, {.bits = 4, .group = 16, .affine = affine});
    const auto error = [&](graph::GraphModule& one) {
      return (one.forward(ids) - expected).norm().item<double>();
    };
    EXPECT_LT(error(*model), 2 * error(*plain));  // another norm
    EXPECT_GT(error(*model), 0);
  }
}

TEST(Hqq, WhatItCannotTakeIsSaid) {
  EXPECT_ERROR(hqq_weight(at::ones({3}), hqq_recipe(4, 16, true)), "expected floating-point [rows, columns]");
  EXPECT_ERROR(hqq_weight(at::ones({3, 4}, at::kInt), hqq_recipe(4, 16, true)), "[quant.hqq]");
  EXPECT_ERROR(hqq_weight(at::ones({3, 4}) / 0, hqq_recipe(4, 16, true)), "expected finite weights");
  EXPECT_ERROR(hqq_weight(at::tensor({3e38F, -3e38F}).view({1, 2}), hqq_recipe(2, 2, true)),
               "expected weights whose ranges float32 holds, got up to 3e+38");
  EXPECT_ERROR(hqq_weight(at::ones({3, 4}), hqq_recipe(8, 16, true)), "affine with 4 bits or fewer");
  EXPECT_ERROR(hqq_weight(at::ones({3, 4}), hqq_recipe(5, 16, false)), "expected bits 8, 4, 3 or 2");
}

}  // namespace
}  // namespace ulp::quant
