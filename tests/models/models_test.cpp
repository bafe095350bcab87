#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>

#include "ulp/base/error.h"
#include "ulp/models/lenet5.h"
#include "ulp/models/mlp.h"
#include "ulp/models/mobilenet_v2.h"
#include "ulp/models/registry.h"
#include "ulp/models/resnet.h"
#include "ulp/models/unet.h"

namespace {

using ulp::models::ImageModel;
using ulp::models::make_model;

int64_t parameter_count(const ImageModel& model) {
  int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

std::string line(const std::string& name, const torch::Tensor& tensor) {
  std::string text = name + ' ';
  for (int64_t i = 0; i < tensor.dim(); ++i) text.append(i ? "x" : "").append(std::to_string(tensor.size(i)));
  return tensor.dim() == 0 ? text + '-' : text;
}

/// The golden list, split into parameters and buffers, each in torchvision's order.
void read_golden(const std::string& model, std::vector<std::string>& parameters,
                 std::vector<std::string>& buffers) {
  std::ifstream file(ULP_SOURCE_DIR "/tests/golden/torchvision_names/" + model + ".txt");
  ASSERT_TRUE(file) << "run tests/golden/make_names.py";
  for (std::string text; std::getline(file, text);) {
    const bool buffer =
        text.find(".running_") != std::string::npos || text.find(".num_batches") != std::string::npos;
    (buffer ? buffers : parameters).push_back(text);
  }
}

class TorchvisionNames : public ::testing::TestWithParam<const char*> {};

TEST_P(TorchvisionNames, NamesShapesAndOrderAreTorchvisions) {
  const auto model = make_model(GetParam(), {.in_channels = 3, .num_classes = 1000, .image_size = 224});
  std::vector<std::string> expected_parameters, expected_buffers, parameters, buffers;
  read_golden(GetParam(), expected_parameters, expected_buffers);
  for (const auto& item : model->named_parameters()) parameters.push_back(line(item.key(), item.value()));
  for (const auto& item : model->named_buffers()) buffers.push_back(line(item.key(), item.value()));
  EXPECT_EQ(parameters, expected_parameters);
  EXPECT_EQ(buffers, expected_buffers);
}

INSTANTIATE_TEST_SUITE_P(Models, TorchvisionNames, ::testing::Values("resnet18", "resnet50", "mobilenet_v2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Models, ParameterCountsAreThoseOfThePapersCode) {
  EXPECT_EQ(parameter_count(*ulp::models::make_resnet18()), 11'689'512);
  EXPECT_EQ(parameter_count(*ulp::models::make_resnet50()), 25'557'032);
  EXPECT_EQ(parameter_count(*ulp::models::make_mobilenet_v2()), 3'504'872);
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
  EXPECT_EQ(names.size(), 8u);
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

TEST(Models, UNetRefusesSizesItCannotHalve) {
  const auto model = ulp::models::make_unet({.in_channels = 1, .depth = 3});
  EXPECT_THROW(model->forward(torch::zeros({1, 1, 28, 28})), ulp::Error);
  EXPECT_EQ(model->forward(torch::zeros({1, 1, 24, 32})).sizes(), (std::vector<int64_t>{1, 2, 24, 32}));
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
