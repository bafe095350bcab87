// The sample of docs/quantization.md: a tensor to codes and back.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "quantization/scheme.includes.h"

namespace {

TEST(QuantizationPage, AWeightGoesThroughTheScheme) {
  torch::manual_seed(1);
  const auto weight = torch::randn({16, 64});
#include "quantization/scheme.inc"
  EXPECT_EQ(codes.scalar_type(), torch::kChar);
  EXPECT_EQ(back.sizes(), weight.sizes());
  EXPECT_GT(error.sqnr_db, 15) << "4 bits in groups of 32";
}

}  // namespace
