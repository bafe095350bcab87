// The networks that torchvision has too: its names and shapes in its order, and its numbers.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ulp/models/googlenet.h"
#include "ulp/models/inception_v3.h"
#include "ulp/models/registry.h"

namespace {

using nlohmann::json;
using ulp::models::AuxImageModel;
using ulp::models::ImageModel;

constexpr const char* kGolden = ULP_SOURCE_DIR "/tests/golden/";

/// With the auxiliary classifiers, as torchvision makes it; null for a network that has none.
std::shared_ptr<AuxImageModel> make_with_aux(const std::string& name, int64_t classes) {
  if (name == "googlenet")
    return ulp::models::make_googlenet({.num_classes = classes, .dropout = 0, .aux_dropout = 0});
  if (name == "inception_v3") return ulp::models::make_inception_v3({.num_classes = classes, .dropout = 0});
  return nullptr;
}

std::shared_ptr<ImageModel> unshard(const std::string& name, int64_t classes) {
  if (auto model = make_with_aux(name, classes)) return model;
  return ulp::models::make_model(name, {.in_channels = 3, .num_classes = classes, .image_size = 224});
}

std::string line(const std::string& name, const torch::Tensor& tensor) {
  std::string text = name + ' ';
  for (int64_t i = 0; i < tensor.dim(); ++i) text.append(i ? "x" : "").append(std::to_string(tensor.size(i)));
  return tensor.dim() == 0 ? text + '-' : text;
}

/// The golden list, split into parameters and buffers, each in torchvision's order.
void read_names(const std::string& model, std::vector<std::string>& parameters,
                std::vector<std::string>& buffers) {
  std::ifstream file(kGolden + ("torchvision_names/" + model + ".txt"));
  ASSERT_TRUE(file) << "run tests/golden/make_torchvision.py";
  for (std::string text; std::getline(file, text);) {
    const bool buffer =
        text.find(".running_") != std::string::npos || text.find(".num_batches") != std::string::npos;
    (buffer ? buffers : parameters).push_back(text);
  }
}

/// uniform() of make_torchvision.py.
at::Tensor uniform(int64_t count, double key) {
  const at::Tensor x = torch::sin(torch::arange(count, at::kDouble) * 12.9898 + key * 78.233) * 43758.5453;
  return 2 * (x - torch::floor(x)) - 1;
}

/// fill() of make_torchvision.py.
void fill(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  double key = 0;
  const auto fill_one = [&](const std::string& name, at::Tensor& tensor) {
    const double mine = key++;
    if (!tensor.is_floating_point()) return;
    at::Tensor values = uniform(tensor.numel(), mine);
    if (tensor.dim() > 1) {
      values *= std::sqrt(6.0 / static_cast<double>(tensor.numel() / tensor.size(0)));
    } else if (name.ends_with("running_var") || name.ends_with("weight")) {
      values = 1 + 0.2 * values;
    } else {
      values *= 0.1;
    }
    tensor.copy_(values.reshape(tensor.sizes()));
  };
  for (auto& item : model.named_parameters()) fill_one(item.key(), item.value());
  for (auto& item : model.named_buffers()) fill_one(item.key(), item.value());
}

at::Tensor images(int64_t batch, int64_t size) {
  return uniform(batch * 3 * size * size, 0.5).to(at::kFloat).reshape({batch, 3, size, size});
}

/// Within 1e-4 of the largest logit.
void expect_logits(const at::Tensor& got, const json& rows) {
  const auto wanted = rows.get<std::vector<std::vector<double>>>();
  ASSERT_EQ(got.sizes(), (std::vector<int64_t>{static_cast<int64_t>(wanted.size()), 10}));
  double largest = 0, error = 0;
  for (size_t n = 0; n < wanted.size(); ++n) {
    for (size_t c = 0; c < 10; ++c) {
      const double value = got[static_cast<int64_t>(n)][static_cast<int64_t>(c)].item<double>();
      largest = std::max(largest, std::abs(wanted[n][c]));
      error = std::max(error, std::abs(wanted[n][c] - value));
    }
  }
  EXPECT_GT(largest, 0.1);
  EXPECT_LE(error, 3e-4 * largest)
      << got;  // batch norms over two images, and processors that round otherwise
}

class Torchvision : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::ifstream file(std::string(kGolden) + "torchvision_logits.json");
    golden = json::parse(file).at(GetParam());
  }
  json golden;
};

TEST_P(Torchvision, NamesShapesAndOrder) {
  const auto model = unshard(GetParam(), 1000);
  std::vector<std::string> expected_parameters, expected_buffers, parameters, buffers;
  read_names(GetParam(), expected_parameters, expected_buffers);
  for (const auto& item : model->named_parameters()) parameters.push_back(line(item.key(), item.value()));
  for (const auto& item : model->named_buffers()) buffers.push_back(line(item.key(), item.value()));
  EXPECT_EQ(parameters, expected_parameters);
  EXPECT_EQ(buffers, expected_buffers);
}

TEST_P(Torchvision, LogitsOfTheSameWeightsAndImages) {
  const auto model = unshard(GetParam(), 10);
  fill(*model);
  model->eval();
  const torch::NoGradGuard no_grad;
  expect_logits(model->forward(images(1, golden.at("size").get<int64_t>())), golden.at("eval"));
}

INSTANTIATE_TEST_SUITE_P(Models, Torchvision,
                         ::testing::Values("resnet18", "resnet50", "resnext50_32x4d", "mobilenet_v2",
                                           "googlenet", "inception_v3", "shufflenet_v2_x1_0"),
                         [](const auto& info) { return std::string(info.param); });

using TorchvisionInTraining = Torchvision;

TEST_P(TorchvisionInTraining, AuxiliaryLogits) {
  const json& expected = golden.at("train");
  const auto model = make_with_aux(GetParam(), 10);
  fill(*model);
  const torch::NoGradGuard no_grad;
  const auto result = model->forward_with_aux(images(2, expected.at("size").get<int64_t>()));
  expect_logits(result.logits, expected.at("logits"));
  const json& auxiliary = expected.at("auxiliary");
  ASSERT_EQ(result.auxiliary.size(), auxiliary.size());
  for (size_t i = 0; i < auxiliary.size(); ++i) expect_logits(result.auxiliary[i], auxiliary[i]);
}

INSTANTIATE_TEST_SUITE_P(Models, TorchvisionInTraining, ::testing::Values("googlenet", "inception_v3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
