// The samples of docs/quantization.md about recipes: a user's observer, and one way to quantize.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "quantization/observer.includes.h"
#include "quantization/one_way.includes.h"
#include "ulp/graph/capture/capture.h"

namespace {

TEST(QuantizationPage, AUsersObserverIsAskedForByItsName) {
#include "quantization/observer.inc"
  EXPECT_EQ(Recipe::from_json(recipe.to_json()).activation.observer, ObserverKind("half"));
}

TEST(QuantizationPage, OneFunctionQuantizesInEveryMode) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(64, 32), torch::nn::ReLU(), torch::nn::Linear(32, 4));
  net->eval();
  const at::Tensor batch = torch::randn({8, 64});
  const auto model = ulp::capture(net, {batch});
#include "quantization/one_way.inc"
  for (const auto& quantized : {dynamic, small, calibrated, trained}) {
    EXPECT_EQ(quantized->forward({batch}).sizes(), (std::vector<int64_t>{8, 4}));
  }
}

}  // namespace
