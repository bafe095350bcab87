// Which elements share a scale: shapes, rows and back, names, and each granularity against plain loops.
#include "ulp/quant/scheme/granularity.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "error_of.h"
#include "ulp/quant/scheme/round_trip.h"

namespace ulp::quant {
namespace {

using ulp::test::error_of;

using Shape = std::vector<int64_t>;

struct Granular {
  Granularity granularity;
  Shape shape, scales;
};

const std::vector<Granular>& cases() {
  static const std::vector<Granular> all = {
      {PerTensor{}, {3, 4}, {1}},
      {PerTensor{}, {}, {1}},
      {PerChannel{0}, {3, 4}, {3}},
      {PerChannel{1}, {2, 5, 3, 2}, {5}},
      {PerChannel{0}, {7}, {7}},
      {PerGroup{4}, {3, 8}, {3, 2}},
      {PerGroup{4}, {3, 10}, {3, 3}},  // the last group of each row has two
      {PerGroup{32}, {5}, {1}},
      {PerGroup{3}, {2, 3, 7}, {2, 3, 3}},
      {PerToken{}, {4, 6}, {4}},
      {PerToken{}, {2, 3, 5}, {2, 3}},
      {PerToken{}, {6}, {}},
      {PerBlock{2, 3}, {4, 6}, {2, 2}},
      {PerBlock{2, 4}, {5, 7}, {3, 2}},
      {PerBlock{3, 2}, {2, 4, 4}, {2, 2, 2}},
      {PerBlock{8, 8}, {3, 2}, {1, 1}},
  };
  return all;
}

// The index of the scale of element `at`, straight from the definition.
int64_t scale_index(const Granular& one, const Shape& at) {
  const size_t last = at.size() - 1;
  Shape index = at;
  if (std::holds_alternative<PerTensor>(one.granularity)) return 0;
  if (const auto* channel = std::get_if<PerChannel>(&one.granularity))
    return at[static_cast<size_t>(channel->axis)];
  if (std::holds_alternative<PerToken>(one.granularity)) index.pop_back();
  if (const auto* group = std::get_if<PerGroup>(&one.granularity)) index[last] /= group->size;
  if (const auto* block = std::get_if<PerBlock>(&one.granularity)) {
    index[last] /= block->columns;
    index[last - 1] /= block->rows;
  }
  int64_t flat = 0;
  for (size_t d = 0; d < index.size(); ++d) flat = flat * one.scales[d] + index[d];
  return flat;
}

Shape position(int64_t flat, const Shape& shape) {
  Shape at(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    at[d] = flat % shape[d];
    flat /= shape[d];
  }
  return at;
}

TEST(Granularity, ShapesOfScales) {
  for (const Granular& one : cases()) {
    EXPECT_EQ(scale_shape(one.granularity, one.shape), one.scales) << to_string(one.granularity) << one.shape;
  }
}

TEST(Granularity, RowsComeBack) {
  for (const Granular& one : cases()) {
    const at::Tensor x = torch::randn(one.shape);
    const at::Tensor rows = to_rows(x, one.granularity);
    ASSERT_EQ(rows.dim(), 2);
    EXPECT_EQ(rows.size(0), c10::multiply_integers(one.scales));
    EXPECT_TRUE(from_rows(rows, one.granularity, x.sizes()).equal(x))
        << to_string(one.granularity) << one.shape;
    if (one.shape.size() != 2) continue;
    const at::Tensor strided = torch::randn({one.shape[1], one.shape[0]}).t();
    EXPECT_TRUE(
        from_rows(to_rows(strided, one.granularity), one.granularity, strided.sizes()).equal(strided));
  }
}

TEST(Granularity, EmptyTensorsHaveRowsToo) {
  for (const Granularity& granularity : {Granularity(PerGroup{4}), Granularity(PerToken{}),
                                         Granularity(PerBlock{2, 2}), Granularity(PerChannel{0})}) {
    for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}}) {
      const at::Tensor x = torch::zeros(shape);
      EXPECT_EQ(from_rows(to_rows(x, granularity), granularity, shape).sizes(), x.sizes());
    }
  }
}

// Every scheme of bits, sign, mapping and range at each granularity, element by element.
TEST(Granularity, EveryElementUsesTheScaleOfItsPart) {
  torch::manual_seed(1);
  for (const Granular& one : cases()) {
    const at::Tensor x = torch::randn(one.shape) * 3 + 0.5;
    for (const Scheme& scheme : {Scheme{.granularity = one.granularity},
                                 Scheme{.bits = 4,
                                 .is_signed = true,
                                 .mapping = Mapping::symmetric,
                                 .range = Range::restricted,
                                 .granularity = one.granularity},
                                 Scheme{.bits = 2, .is_signed = true, .granularity = one.granularity}}) {
      const QParams params = qparams_of(x, scheme);
      ASSERT_EQ(params.scale.sizes(), at::IntArrayRef(one.scales));
      const at::Tensor q = quantize(x, params), back = dequantize(q, params), fake = fake_quantize(x, params);
      EXPECT_EQ(q.scalar_type(), scheme.dtype());
      EXPECT_TRUE(back.equal(fake)) << scheme.to_string();
      EXPECT_TRUE(back.equal(quantize_dequantize(x, params)));
      const at::Tensor values = x.reshape(-1), codes = q.reshape(-1), scales = params.scale.reshape(-1),
                       zeros = params.zero_point.reshape(-1);
      for (int64_t i = 0; i < x.numel(); ++i) {
        const int64_t part = scale_index(one, position(i, one.shape));
        const float s = scales[part].item<float>(), z = zeros[part].item<float>();
        const float code = std::nearbyint(values[i].item<float>() * (1 / s)) + z;
        const auto expected =
            std::clamp(code, static_cast<float>(scheme.qmin()), static_cast<float>(scheme.qmax()));
        ASSERT_EQ(codes[i].item<float>(), expected) << scheme.to_string() << " element " << i;
      }
    }
  }
}

TEST(Granularity, FinerPartsHaveSmallerErrors) {
  torch::manual_seed(2);
  const at::Tensor x = torch::randn({32, 128}) * at::pow(10.0, torch::rand({32, 128}) * 2);
  double previous = 1e30;
  for (const Granularity& granularity : {Granularity(PerTensor{}), Granularity(PerToken{}),
                                         Granularity(PerGroup{32}), Granularity(PerGroup{8})}) {
    const Scheme scheme{
        .bits = 4, .is_signed = true, .mapping = Mapping::symmetric, .granularity = granularity};
    const double mse = quantization_error(x, quantize_dequantize(x, qparams_of(x, scheme))).mse;
    EXPECT_LT(mse, previous) << scheme.to_string();
    previous = mse;
  }
}

TEST(Granularity, GradientPassesThroughGroups) {
  const at::Tensor x = torch::tensor({{0.1F, 0.9F, -3.0F}, {0.3F, -0.2F, 8.0F}}).requires_grad_();
  QParams params = qparams_of(x, Scheme{.is_signed = true,
                                        .mapping = Mapping::symmetric,
                                        .range = Range::restricted,
                                        .granularity = PerGroup{2}});
  params.scale[1][1] = 4.0F / 127;  // 8 lies outside
  fake_quantize(x, params).sum().backward();
  EXPECT_TRUE(x.grad().equal(torch::tensor({{1.0F, 1.0F, 1.0F}, {1.0F, 1.0F, 0.0F}}))) << x.grad();
}

TEST(Granularity, TextBothWays) {
  const std::vector<std::pair<std::string, std::string>> words = {{"tensor", "per tensor"},
                                                                  {"channel:1", "per channel 1"},
                                                                  {"group:32", "per group 32"},
                                                                  {"token", "per token"},
                                                                  {"block:2x4", "per block 2x4"}};
  for (const auto& [text, name] : words) EXPECT_EQ(to_string(parse_granularity(text)), name);
  for (const char* text :
       {"", "tensors", "tensor:1", "channel", "channel:", "channel:a", "channel:1x", "group:0", "group:-4",
        "channel:-1", "block:2", "block:2x", "block:0x4", "block:2x4x8", "token:"}) {
    EXPECT_NE(error_of([&] { parse_granularity(text); }).find("expected"), std::string::npos) << text;
  }
}

TEST(Granularity, RefusesShapesWithoutSuchParts) {
  EXPECT_NE(error_of([] {
              scale_shape(PerChannel{2}, {3, 2});
            }).find("a dimension 2, got shape [3, 2]"),
            std::string::npos);
  EXPECT_NE(error_of([] { to_rows(torch::zeros({}), PerToken{}); }).find("at least 1 dimension per token"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              scale_shape(PerBlock{2, 2}, {3});
            }).find("at least 2 dimensions"),
            std::string::npos);
  EXPECT_NE(error_of([] { scale_shape(PerGroup{0}, {3}); }).find("group size"), std::string::npos);
  const QParams params = qparams_of(torch::randn({4, 8}), Scheme{.granularity = PerGroup{4}});
  EXPECT_NE(error_of([&] {
              quantize(torch::randn({4, 12}), params);
            }).find("shape [4, 3]"),
            std::string::npos);
  EXPECT_NE(error_of([&] { params.axis(); }).find("per group 4"), std::string::npos);
}

}  // namespace
}  // namespace ulp::quant
