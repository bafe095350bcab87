// Every reference network, captured and proved equal to the original.
#include "same.h"
#include "ulp/models/registry.h"
#include "ulp/models/unet.h"

namespace {

using namespace ulp;
using namespace ulp::test;

class Models : public ::testing::TestWithParam<std::string> {};

TEST_P(Models, EqualTheOriginalBitForBit) {
  torch::manual_seed(1);
  bool unet = GetParam() == "unet";
  models::ModelOptions options{.in_channels = 3, .num_classes = 4, .image_size = unet ? 16 : 32};
  auto model = models::make_model(GetParam(), options);
  check(*model, {torch::randn({3, 3, options.image_size, options.image_size})});
}

INSTANTIATE_TEST_SUITE_P(All, Models, ::testing::ValuesIn(models::model_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
