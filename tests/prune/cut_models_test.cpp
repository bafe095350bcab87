// The reference networks: the cut one is the masked one.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cut_networks.h"
#include "ulp/models/image_model.h"
#include "ulp/models/registry.h"

namespace ulp::test {
namespace {

class CutImageModel : public testing::TestWithParam<std::string> {};

TEST_P(CutImageModel, IsTheMaskedOne) {
  torch::manual_seed(1);
  const auto model = models::make_model(GetParam(), {.in_channels = 3, .num_classes = 5, .image_size = 32});
  {
    const torch::NoGradGuard no_grad;
    for (auto& buffer : model->named_buffers()) {
      if (buffer.key().ends_with("running_mean")) buffer.value().normal_();
      if (buffer.key().ends_with("running_var")) buffer.value().uniform_(0.5, 2);
    }
    for (auto& parameter : model->named_parameters()) {
      if (parameter.value().dim() == 1) parameter.value().uniform_(0.2, 1.2);
    }
  }
  const Captured module = capture(*model, {torch::randn({2, 3, 32, 32})});
  module->to(torch::kDouble);
  const prune::Groups groups = prune::groups(module->graph());
  ASSERT_FALSE(groups.groups.empty()) << words(groups);
  const prune::Removals removals = some_units(groups, 0.4, 7);
  if (std::getenv("ULP_SHOW")) std::cout << words(groups);
  const bool dropout = GetParam() == "googlenet" || GetParam() == "inception_v3" || GetParam() == "mobilenet_v2";
  const auto x = [](int64_t batch) { return std::vector{torch::randn({batch, 3, 32, 32}, torch::kDouble)}; };
  expect_cut_is_masked(module, {x(3)}, groups, removals, 1e-9, !dropout);
}

INSTANTIATE_TEST_SUITE_P(All, CutImageModel, testing::ValuesIn(models::model_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ulp::test
