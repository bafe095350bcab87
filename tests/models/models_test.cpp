#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "parameter_count.h"
#include "ulp/base/error.h"
#include "ulp/models/googlenet.h"
#include "ulp/models/inception_v3.h"
#include "ulp/models/lenet5.h"
#include "ulp/models/mlp.h"
#include "ulp/models/mobilenet_v2.h"
#include "ulp/models/registry.h"
#include "ulp/models/resnet.h"
#include "ulp/models/shufflenet_v2.h"
#include "ulp/models/unet.h"

namespace {

using ulp::models::ImageModel;
using ulp::models::make_model;

TEST(Models, ParameterCountsAreThoseOfThePapersCode) {
  EXPECT_EQ(parameter_count(*ulp::models::make_resnet18()), 11'689'512);
  EXPECT_EQ(parameter_count(*ulp::models::make_resnet50()), 25'557'032);
  EXPECT_EQ(parameter_count(*ulp::models::make_mobilenet_v2()), 3'504'872);
  EXPECT_EQ(parameter_count(*ulp::models::make_resnext50_32x4d()), 25'028'904);
  EXPECT_EQ(parameter_count(*ulp::models::make_googlenet({.aux_logits = false})), 6'624'904);
  EXPECT_EQ(parameter_count(*ulp::models::make_inception_v3()), 27'161'264);
  EXPECT_EQ(parameter_count(*ulp::models::make_shufflenet_v2_x1_0()), 2'278'604);
  EXPECT_EQ(parameter_count(*ulp::models::make_resnet20()), 272'474);
  EXPECT_EQ(parameter_count(*ulp::models::make_lenet5()), 61'706);
  EXPECT_EQ(parameter_count(*ulp::models::make_unet(ulp::models::UNetOptions::spell())), 7'703'497);
  EXPECT_EQ(parameter_count(*ulp::models::make_mlp()), 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10);
}

class EveryModel : public ::testing::TestWithParam<std::string> {
 protected:
  // The layers are small: on a busy machine threads cost more in waiting than they save.
  void SetUp() override { torch::set_num_threads(1); }
};

TEST_P(EveryModel, RunsInBothModesAndGivesEveryParameterAGradient) {
  torch::manual_seed(1);
  const auto model = make_model(GetParam(), {.in_channels = 1, .num_classes = 10, .image_size = 28});
  const auto images = torch::randn({2, 1, 28, 28}).contiguous(torch::MemoryFormat::ChannelsLast);
  const bool dense = GetParam() == "unet";
  const std::vector<int64_t> expected =
      dense ? std::vector<int64_t>{2, 10, 28, 28} : std::vector<int64_t>{2, 10};

  const auto logits = model->forward(images);
  EXPECT_EQ(logits.sizes(), expected);
  logits.square().sum().backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
  }

  model->eval();
  torch::NoGradGuard no_grad;
  const auto first = model->forward(images);
  EXPECT_TRUE(torch::equal(first, model->forward(images)));
  EXPECT_TRUE(first.isfinite().all().item<bool>());
}

TEST_P(EveryModel, TheSeedFixesTheParameters) {
  const auto made = [&](uint64_t seed) {
    torch::manual_seed(seed);
    return make_model(GetParam())->parameters();
  };
  const auto first = made(5), again = made(5), other = made(6);
  bool differs = false;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(torch::equal(first[i], again[i]));
    differs = differs || !torch::equal(first[i], other[i]);
  }
  EXPECT_TRUE(differs);
}

TEST_P(EveryModel, WrongChannelsAreAnErrorThatNamesTheModel) {
  const auto model = make_model(GetParam());
  try {
    model->forward(torch::zeros({1, 5, 32, 32}));
    FAIL() << "accepted 5 channels";
  } catch (const ulp::Error& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam()), std::string::npos) << error.what();
  }
  EXPECT_THROW(model->forward(torch::zeros({3, 32, 32})), ulp::Error);
  EXPECT_THROW(make_model(GetParam(), {.in_channels = 0}), ulp::Error);
  EXPECT_THROW(make_model(GetParam(), {.num_classes = 0}), ulp::Error);
  EXPECT_THROW(make_model(GetParam(), {.image_size = 0}), ulp::Error);
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModel, ::testing::ValuesIn(ulp::models::model_names()),
                         [](const auto& info) { return info.param; });

TEST(Models, NamesAreSortedAndAnUnknownOneIsAnErrorThatListsThem) {
  const auto names = ulp::models::model_names();
  EXPECT_FALSE(names.empty());
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  try {
    make_model("resnet21");
    FAIL() << "accepted resnet21";
  } catch (const ulp::Error& error) {
    for (const auto& name : names)
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("resnet21"), std::string::npos) << error.what();
  }
}

TEST(Models, ConvolutionsStartWithTheVarianceOfFanOut) {
  torch::manual_seed(2);
  const auto model = ulp::models::make_resnet18();
  const auto parameters = model->named_parameters();
  const auto deviation = parameters["layer4.1.conv2.weight"].std().item<double>();
  EXPECT_NEAR(deviation, std::sqrt(2.0 / (512 * 9)), 1e-3 * deviation + 1e-5);
  EXPECT_TRUE(torch::equal(parameters["bn1.weight"], torch::ones({64})));
  EXPECT_TRUE(torch::equal(parameters["bn1.bias"], torch::zeros({64})));
}

TEST(Models, ResNet20TakesOtherWidthsBlocksAndStems) {
  const auto model =
      ulp::models::make_resnet20({.in_channels = 1, .widths = {8, 24}, .blocks = {1, 2}, .stem_stride = 2});
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters["layer2.0.downsample.0.weight"].sizes(), (std::vector<int64_t>{24, 8, 1, 1}));
  EXPECT_FALSE(parameters.contains("layer3.0.conv1.weight"));
  EXPECT_EQ(model->forward(torch::zeros({2, 1, 28, 28})).sizes(), (std::vector<int64_t>{2, 10}));
  EXPECT_THROW(ulp::models::make_resnet20({.widths = {8, 16}, .blocks = {1}}), ulp::Error);
  EXPECT_THROW(ulp::models::make_resnet20({.widths = {}, .blocks = {}}), ulp::Error);
}

TEST(Models, LargeInputsTakeTheStridedStem) {
  const auto large = make_model("resnet18", {.image_size = 64})->named_parameters();
  const auto small = make_model("resnet18", {.image_size = 32})->named_parameters();
  EXPECT_EQ(large["conv1.weight"].size(2), 7);
  EXPECT_EQ(small["conv1.weight"].size(2), 3);
}

TEST(Models, AuxiliaryLogitsNeedTheirClassifiersAndLargeImages) {
  const auto images = torch::zeros({2, 3, 64, 64});
  const auto without = ulp::models::make_googlenet({.num_classes = 4, .aux_logits = false});
  EXPECT_THROW(without->forward_with_aux(images), ulp::Error);
  const auto inception = ulp::models::make_inception_v3({.num_classes = 4});
  EXPECT_THROW(inception->forward(images), ulp::Error);
  EXPECT_THROW(inception->forward_with_aux(torch::zeros({2, 3, 75, 75})), ulp::Error);
}

TEST(Models, UNetRefusesSizesItCannotHalve) {
  const auto model = ulp::models::make_unet({.in_channels = 1, .depth = 3});
  EXPECT_THROW(model->forward(torch::zeros({1, 1, 28, 28})), ulp::Error);
  EXPECT_EQ(model->forward(torch::zeros({1, 1, 24, 32})).sizes(), (std::vector<int64_t>{1, 2, 24, 32}));
}

TEST(Mlp, TakesRowsAsImagesOfOnePixel) {
  const auto model = ulp::models::make_mlp({.in_channels = 5, .image_size = 1, .num_classes = 3});
  const at::Tensor rows = torch::randn({4, 5});
  EXPECT_TRUE(torch::equal(model->forward(rows), model->forward(rows.reshape({4, 5, 1, 1}))));
  EXPECT_THROW(model->forward(torch::randn({4, 6})), ulp::Error);
}

TEST(Models, MlpDropsOnlyInTraining) {
  torch::manual_seed(3);
  const auto model = ulp::models::make_mlp({.image_size = 4, .hidden = {64}, .dropout = 0.5});
  const auto x = torch::randn({2, 1, 4, 4});
  EXPECT_FALSE(torch::equal(model->forward(x), model->forward(x)));
  model->eval();
  EXPECT_TRUE(torch::equal(model->forward(x), model->forward(x)));
}

}  // namespace
