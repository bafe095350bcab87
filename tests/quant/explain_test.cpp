// The worked examples of the articles, and what explain() and parse_matrix() refuse.
#include "ulp/quant/analysis/explain.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "error_of.h"

namespace ulp::quant {
namespace {

using ulp::test::error_of;

const Scheme kS4Restricted{
    .bits = 4, .is_signed = true, .mapping = Mapping::symmetric, .range = Range::restricted};

std::vector<int> codes_of(const Explanation& e) {
  const at::Tensor flat = e.codes.reshape(-1).contiguous();
  return {flat.const_data_ptr<int>(), flat.const_data_ptr<int>() + flat.numel()};
}

TEST(ParseMatrix, RowsAndNumbers) {
  const at::Tensor expected = torch::tensor({{1.5F, -2.0F}, {0.3F, 4.0F}});
  EXPECT_TRUE(parse_matrix("1.5,-2;0.3,4").equal(expected));
  EXPECT_TRUE(parse_matrix(" 1.5 , -2e0 ;\t.3,4 ").equal(expected));
  EXPECT_EQ(parse_matrix("7").sizes(), (at::IntArrayRef{1, 1}));
  for (const char* text : {"", ";", "1,", ",1", "1;", "1,2;3,x", "1 2", "nan", "inf", "1e99", "0x"}) {
    EXPECT_NE(error_of([&] { parse_matrix(text); }).find("expected a finite number"), std::string::npos)
        << text;
  }
  EXPECT_NE(error_of([] { parse_matrix("1,2;3"); }).find("expected 2 numbers in each row, got 1 in '3'"),
            std::string::npos);
}

// Printed: scale 0.285, codes [[-5, 1], [-1, 7]], dequantized [[-1.43, 0.28], [-0.28, 2.0]].
TEST(Explain, SignedExampleOfTheArticle) {
  const Explanation e = explain(parse_matrix("-1.54,0.22;-0.26,2.0"), kS4Restricted);
  EXPECT_EQ(e.target, "s4 symmetric restricted per tensor");
  EXPECT_EQ(e.lowest, -7);
  EXPECT_EQ(e.highest, 7);
  EXPECT_EQ(codes_of(e), (std::vector<int>{-5, 1, -1, 7}));
  EXPECT_NEAR(e.scale.item<double>(), 0.2857, 1e-4);
  const at::Tensor printed = torch::tensor({{-1.43F, 0.28F}, {-0.28F, 2.0F}});
  EXPECT_TRUE(at::allclose(e.values, printed, 0, 0.0058)) << e.values;
  // The two 0.28 are 0.285714: cut off, not rounded.
  EXPECT_NEAR(e.values[0][1].item<double>(), 2.0 / 7, 1e-6);
  EXPECT_NEAR(e.error.max_abs, 1.54 - 10.0 / 7, 1e-6);
}

TEST(Explain, ProductWithAndWithoutBias) {
  const at::Tensor a = parse_matrix("-2.2,-1.1,1.1,2.2"), b = parse_matrix("0.5,0.3,0.3,0.5");
  Scheme scheme{.is_signed = true, .mapping = Mapping::symmetric};
  EXPECT_EQ(codes_of(explain(a, scheme)), (std::vector<int>{-128, -64, 64, 127}));
  EXPECT_EQ(codes_of(explain(b, scheme)), (std::vector<int>{127, 76, 76, 127}));  // the article prints 77
  scheme.range = Range::restricted;
  EXPECT_EQ(codes_of(explain(a, scheme)), (std::vector<int>{-127, -64, 64, 127}));
  EXPECT_EQ(codes_of(explain(b, scheme)), (std::vector<int>{127, 76, 76, 127}));
}

// [-4.2, 4.2] -> [-10, 10] and [-4.0, 8.3] -> [0, 10] are no powers of two; the same ranges on 4 bits.
TEST(Explain, RangesOfTheArticleKeepZeroExact) {
  const Explanation symmetric = explain(parse_matrix("-4.2,0,4.2"), kS4Restricted);
  EXPECT_EQ(codes_of(symmetric), (std::vector<int>{-7, 0, 7}));
  const Explanation affine = explain(parse_matrix("-4.0,0,8.3"), Scheme{.bits = 4});
  EXPECT_EQ(affine.zero_point.item<int>(), 5);  // 4 / (12.3 / 15), rounded
  EXPECT_EQ(codes_of(affine), (std::vector<int>{0, 5, 15}));
  EXPECT_EQ(affine.values[0][1].item<float>(), 0.0F);
}

TEST(Explain, NamesTheParts) {
  const at::Tensor x = torch::arange(1, 13, at::kFloat).reshape({3, 4});
  const auto parts = [&](const Granularity& granularity) {
    return explain(x, Scheme{.granularity = granularity}).parts;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(parts(PerTensor{}), (Names{"all"}));
  EXPECT_EQ(parts(PerToken{}), (Names{"row 0", "row 1", "row 2"}));
  EXPECT_EQ(parts(PerChannel{1}).back(), "channel 3");
  EXPECT_EQ(parts(PerGroup{3})[1], "row 0, column 3");
  EXPECT_EQ(parts(PerBlock{2, 2}), (Names{"rows 0-1, columns 0-1", "rows 0-1, columns 2-3",
                                          "row 2, columns 0-1", "row 2, columns 2-3"}));
  const Explanation e = explain(x, Scheme{.granularity = PerBlock{2, 2}});
  EXPECT_TRUE(e.max.equal(torch::tensor({6.0F, 8.0F, 10.0F, 12.0F})));
  EXPECT_FLOAT_EQ(e.scale[3].item<float>(), 12.0F / 255);
}

TEST(Explain, ClipRangeReplacesTheValuesOwn) {
  const Explanation e = explain(parse_matrix("-1.1,0.5,9"), kS4Restricted, ClipRange{-2, 2});
  EXPECT_EQ(codes_of(e), (std::vector<int>{-4, 2, 7}));  // -3.85, 1.75, and 31.5 clipped
  EXPECT_NEAR(e.error.max_abs, 7, 1e-6);
}

TEST(Explain, SmallFloatingPointFormats) {
  const Explanation e = explain(parse_matrix("448,1.06,-0.001"), FloatScheme{});
  EXPECT_EQ(e.target, "fp8_e4m3fn per tensor");
  EXPECT_FALSE(e.zero_point.defined());
  EXPECT_EQ(e.lowest, -448);
  EXPECT_EQ(codes_of(e), (std::vector<int>{0x7e, 0x38, 0x81}));
  EXPECT_TRUE(e.values.equal(torch::tensor({{448.0F, 1.0F, -0x1p-9F}}))) << e.values;
}

TEST(Explain, RefusesWhatItCannotExplain) {
  EXPECT_THROW(explain(torch::zeros({3}), Scheme{}), Error);
  EXPECT_THROW(explain(torch::zeros({0, 3}), Scheme{}), Error);
  EXPECT_THROW(explain(torch::ones({2, 2}), Scheme{.bits = 1}), Error);
  EXPECT_THROW(explain(torch::ones({2, 2}), Scheme{.granularity = PerChannel{2}}), Error);
  EXPECT_THROW(explain(torch::ones({2, 2}), Scheme{}, ClipRange{2, 2}), Error);
  EXPECT_THROW(explain(torch::ones({2, 2}), FloatScheme{"int8"}), Error);
}

}  // namespace
}  // namespace ulp::quant
