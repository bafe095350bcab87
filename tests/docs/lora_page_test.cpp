// The sample of docs/lora.md: a captured model with adapters trains, is written, read and merged.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "in_temporary_folder.h"
#include "lora/add_lora.includes.h"

namespace {

struct TwoLayersImpl : torch::nn::Module {
  TwoLayersImpl() {
    register_module("up", up);
    register_module("down", down);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) { return head(down(torch::relu(up(x)))); }
  torch::nn::Linear up{8, 32}, down{32, 8}, head{8, 2};
};
TORCH_MODULE(TwoLayers);

TEST(LoraPage, TheSampleRuns) {
  const ulp::docs::InTemporaryFolder folder;
  torch::manual_seed(1);
  TwoLayers model;
  const auto x = torch::randn({4, 8}), target = torch::randn({4, 2});
#include "lora/add_lora.inc"
  EXPECT_EQ(tuned->parameters().size(), 4U);
  EXPECT_EQ(merged->parameters().size(), 6U);
}

}  // namespace
