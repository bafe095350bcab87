#include <gtest/gtest.h>
#include <torch/torch.h>

#include "parameter_count.h"
#include "ulp/base/error.h"
#include "ulp/models/binary_lenet5.h"
#include "ulp/models/binary_resnet.h"
#include "ulp/models/registry.h"
#include "ulp/quant/binary/binary_weights.h"

namespace {

using ulp::quant::latent_weights;

TEST(BinaryModels, HaveTheParametersOfTheirFloatForms) {
  EXPECT_EQ(parameter_count(*ulp::models::make_birealnet()), 11'689'512);     // ResNet-18
  EXPECT_EQ(parameter_count(*ulp::models::make_binary_resnet20()), 272'474);  // ResNet-20
  EXPECT_EQ(parameter_count(*ulp::models::make_binary_lenet5()),
            25 * 32 + 64 + 25 * 32 * 64 + 128 + 64 * 25 * 512 + 1024 + 512 * 256 + 512 + 2570);
}

TEST(BinaryModels, FirstLayerShortcutsAndClassifierAreFloat) {
  EXPECT_EQ(latent_weights(*ulp::models::make_binary_lenet5()),
            (std::vector<std::string>{"conv2.weight", "fc1.weight", "fc2.weight"}));
  const auto resnet = latent_weights(*ulp::models::make_binary_resnet20());
  EXPECT_EQ(resnet.size(), 18U);
  for (const std::string& name : resnet) EXPECT_TRUE(name.ends_with(".conv.weight")) << name;
  EXPECT_EQ(latent_weights(*ulp::models::make_birealnet()).size(), 16U);
}

/// ReActNet's blocks: shifts and slopes beside what the plain network has, and they learn.
TEST(BinaryModels, BlocksMayHaveLearnedShifts) {
  torch::manual_seed(2);
  const auto plain = ulp::models::make_binary_resnet20({.widths = {8, 16}, .convolutions = {2, 2}});
  const auto react =
      ulp::models::make_binary_resnet20({.widths = {8, 16}, .convolutions = {2, 2}, .react = true});
  EXPECT_EQ(parameter_count(*react), parameter_count(*plain) + (8 + 8 + 8 + 16) + 3 * (8 + 8 + 16 + 16));
  EXPECT_EQ(latent_weights(*react), latent_weights(*plain));
  react->forward(torch::randn({4, 3, 16, 16})).square().sum().backward();
  for (const auto& parameter : react->named_parameters())
    EXPECT_GT(parameter.value().grad().abs().sum().item<double>(), 0) << parameter.key();
}

TEST(BinaryModels, SignsAreAllThatCounts) {
  for (const char* name : {"binary_lenet5", "binary_resnet20"}) {
    torch::manual_seed(1);
    const auto model = ulp::models::make_model(name, {.in_channels = 3, .image_size = 32});
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 3; ++i) model->forward(torch::randn({8, 3, 32, 32}));
    model->eval();
    const auto x = torch::randn({2, 3, 32, 32}), before = model->forward(x);
    const auto parameters = model->named_parameters();
    for (const std::string& latent : latent_weights(*model)) {
      // The same signs and the same mean size.
      at::Tensor weight = parameters[latent];
      const auto rows = weight.flatten(1);
      const auto signs = torch::where(rows.ge(0), 1.0F, -1.0F);
      weight.copy_((signs * rows.abs().mean(1, /*keepdim=*/true)).view(weight.sizes()));
    }
    EXPECT_TRUE(torch::allclose(model->forward(x), before, 1e-3, 1e-3)) << name;
    parameters[latent_weights(*model)[1]].neg_();
    EXPECT_FALSE(torch::allclose(model->forward(x), before, 1e-3, 1e-3)) << name;
  }
}

TEST(BinaryModels, OptionsThatDoNotFitAreErrors) {
  EXPECT_THROW(ulp::models::make_binary_resnet20({.widths = {8, 16}, .convolutions = {1}}), ulp::Error);
  EXPECT_THROW(ulp::models::make_binary_lenet5({.image_size = 8}), ulp::Error);
  EXPECT_EQ(
      ulp::models::make_birealnet(1, 4, /*small_input=*/true)->forward(torch::zeros({2, 1, 28, 28})).sizes(),
      (std::vector<int64_t>{2, 4}));
}

}  // namespace
