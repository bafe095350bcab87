// The samples of docs/memory.md.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "memory/predict.includes.h"

namespace {

torch::nn::Sequential make_model() {
  return torch::nn::Sequential(torch::nn::Linear(20, 30), torch::nn::ReLU(), torch::nn::Linear(30, 5));
}

TEST(MemoryPage, Predict) {
#include "memory/predict.inc"
  EXPECT_GT(prediction.peak_bytes, 4096 * (20 + 30 + 5) * 4);
  EXPECT_FALSE(cause.empty());
  EXPECT_LE(predictor.peak_bytes({.batch = batch}), 64 << 20);
  EXPECT_GT(predictor.peak_bytes({.batch = batch + 1}), 64 << 20);
}

}  // namespace
