#include "ulp/amp/optimizer/large_pages.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace {

TEST(LargePages, AreZerosInTheLayoutOfTheOther) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{}, {0}, {3}, {4, 5, 6, 7}, {2, 64, 128, 128}}) {
    at::Tensor like = torch::ones(sizes, torch::requires_grad());
    if (like.dim() == 4) like = like.contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor zeros = ulp::amp::zeros_on_large_pages(like, torch::kBFloat16);
    EXPECT_TRUE(torch::equal(zeros, torch::zeros(sizes, torch::kBFloat16)));
    EXPECT_EQ(zeros.strides(), like.strides());
    EXPECT_FALSE(zeros.requires_grad());
  }
}

}  // namespace
