// The reference networks: the cut one is the masked one.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cut_networks.h"
#include "image_networks.h"
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
  const prune::Groups groups = prune::groups(module->graph());
  ASSERT_FALSE(groups.groups.empty()) << words(groups);
  const prune::Removals removals = some_units(groups, 0.4, 7);
  // LibTorch has no fast convolutions in double: the large networks run in float, and not in train mode, where batch
  // norms over few elements blow rounding up.
  const std::vector<std::string> small{"lenet5", "mlp", "resnet14", "resnet20"};
  const bool exact = std::ranges::find(small, GetParam()) != small.end();
  if (exact) module->to(torch::kDouble);
  const auto type = exact ? torch::kDouble : torch::kFloat;
  expect_cut_is_masked(module, {{torch::randn({3, 3, 32, 32}, type)}}, groups, removals, exact ? 1e-9 : 3e-4,
                       exact);
}

INSTANTIATE_TEST_SUITE_P(All, CutImageModel, testing::ValuesIn(models_of_numbers()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ulp::test
