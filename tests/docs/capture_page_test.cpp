// The samples of docs/capture.md: further inputs to check, and a detector that returns a struct.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "capture/check.includes.h"
#include "capture/types.includes.h"

namespace {

TEST(CapturePage, FurtherInputsAreChecked) {
  torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4), torch::nn::Dropout(0.5));
  const auto example = torch::randn({2, 4}), large_batch = torch::randn({100, 4}),
             dark_images = torch::zeros({3, 4});
#include "capture/check.inc"
  EXPECT_EQ(captured->forward(large_batch).sizes(), large_batch.sizes());
}

TEST(CapturePage, AStructIsReturned) {
  const auto images = torch::randn({2, 3, 5, 5});
#include "capture/types.inc"
  EXPECT_TRUE(torch::equal(found.boxes, detector.forward(images).boxes));
  EXPECT_TRUE(torch::equal(found.scores, detector.forward(images).scores));
}

}  // namespace
