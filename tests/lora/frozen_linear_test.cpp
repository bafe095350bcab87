// ulp::frozen_linear beside at::linear of the decoded weight, over drawn sizes.
#include "ulp/lora/frozen_linear.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

#include "error_of.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/measure/memory_meter.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::lora {
namespace {

using at::Tensor;

constexpr LoraBase kFormats[] = {LoraBase::bf16, LoraBase::int8, LoraBase::int4, LoraBase::nf4};

class FrozenLinearDraws : public ::testing::TestWithParam<int> {};

TEST_P(FrozenLinearDraws, HasTheBitsOfTheDecodedWeight) {
  std::mt19937 random(GetParam());
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  torch::manual_seed(GetParam());
  const LoraBase format = kFormats[draw(0, 3)];
  const LoraOptions options{.group = std::array<int64_t, 4>{32, 2, 64, -1}[draw(0, 3)],
                            .double_quant = draw(0, 1) == 1};
  const int64_t rows = draw(1, 90), columns = draw(1, 150);
  const FrozenWeight weight = freeze_weight("w", torch::randn({rows, columns}), format, options);
  const Tensor bias = draw(0, 1) == 1 ? torch::randn({rows}) : Tensor();
  std::vector<int64_t> sizes = {columns};
  for (int d = draw(0, 3); d > 0; --d) sizes.insert(sizes.begin(), draw(1, 5));
  const at::ScalarType type = std::array{at::kFloat, at::kBFloat16, at::kHalf}[draw(0, 2)];
  const bool autocast = draw(0, 1) == 1 && type != at::kHalf;
  const Tensor x = torch::randn(sizes).to(autocast ? at::kFloat : type).set_requires_grad(true);
  const Tensor same = x.detach().clone().set_requires_grad(true);
  const at::ScalarType result = autocast ? at::kBFloat16 : type;
  Tensor y;
  {
    std::optional<amp::Autocast> guard;
    if (autocast) guard.emplace(torch::kCPU, torch::kBFloat16);
    y = frozen_linear(x, weight, bias);
  }
  const Tensor decoded = dequantize(weight, result);
  const Tensor expected =
      at::linear(same.to(result), decoded, bias.defined() ? std::optional(bias.to(result)) : std::nullopt);
  EXPECT_EQ(y.scalar_type(), result);
  EXPECT_TRUE(at::equal(y, expected));
  const Tensor g = torch::randn(y.sizes()).to(result);
  y.backward(g);
  expected.backward(g);
  EXPECT_EQ(x.grad().scalar_type(), x.scalar_type());
  // LibTorch may turn the product around, which sums in another order.
  const double most = static_cast<double>(rows) * 2 *
                      (result == at::kFloat  ? 6e-8
                       : result == at::kHalf ? 5e-4
                                             : 4e-3);
  const double scale =
      (g.to(at::kFloat).abs().view({-1, rows}).sum(1).max() * decoded.to(at::kFloat).abs().max())
          .item<double>();
  EXPECT_LE((x.grad().to(at::kFloat) - same.grad().to(at::kFloat)).abs().max().item<double>(),
            most * std::max(scale, 1.0));
  const at::NoGradGuard no_grad;
  if (!autocast) EXPECT_TRUE(at::equal(frozen_linear(x, weight, bias), y));
}

INSTANTIATE_TEST_SUITE_P(All, FrozenLinearDraws, ::testing::Range(0, 60));

TEST(FrozenLinear, CodesOfWeightOnlyQuantization) {
  torch::manual_seed(1);
  const Tensor w = torch::randn({10, 70});
  for (const LoraBase format : {LoraBase::int8, LoraBase::int4}) {
    const FrozenWeight weight = freeze_weight("w", w, format, {});
    EXPECT_TRUE(at::equal(dequantize(weight), quant::dequantize_weight(weight.parts[0], weight.parts[1],
                                                                       std::nullopt, weight.columns)));
  }
}

TEST(FrozenLinear, KeepsNeitherInputNorDecodedWeight) {
  torch::manual_seed(1);
  const FrozenWeight weight = freeze_weight("w", torch::randn({32, 16}), LoraBase::nf4, {});
  const Tensor leaf = torch::randn({4, 16}).set_requires_grad(true);
  Tensor x = leaf * 2, y;
  const c10::weak_intrusive_ptr<c10::TensorImpl> input(x.getIntrusivePtr());
  {
    const measure::MemoryMeter meter;
    y = frozen_linear(x, weight);
    EXPECT_EQ(meter.live_bytes(), static_cast<int64_t>(y.nbytes()));
    EXPECT_GE(meter.peak_bytes(), static_cast<int64_t>(y.nbytes()) + 4 * 32 * 16);
  }
  x.reset();
  EXPECT_TRUE(input.expired());
  y.sum().backward();
  EXPECT_TRUE(at::allclose(leaf.grad(), 2 * dequantize(weight).sum(0).expand({4, 16}), 1e-5, 1e-5));
}

TEST(FrozenLinear, RefusesByName) {
  const FrozenWeight weight = freeze_weight("w", torch::randn({4, 6}), LoraBase::int8, {});
  EXPECT_ERROR(frozen_linear(torch::randn({2, 5}), weight), "x [..., 6]");
  EXPECT_ERROR(frozen_linear(torch::ones({2, 6}, at::kInt), weight), "floating-point");
  EXPECT_ERROR(frozen_linear(torch::randn({2, 6}), weight, torch::randn({5})), "bias of 4");
  EXPECT_ERROR(frozen_linear(torch::randn({2, 6}), weight, torch::randn({4}).set_requires_grad(true)),
               "does not train");
  const Tensor x = torch::randn({2, 6}).set_requires_grad(true);
  const Tensor y = frozen_linear(x, weight).sum();
  EXPECT_ERROR(torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true), "create_graph");
  EXPECT_ERROR(freeze_weight("w", torch::full({2, 2}, NAN), LoraBase::nf4, {}), "'w'");
}

}  // namespace
}  // namespace ulp::lora
