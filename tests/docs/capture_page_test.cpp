// The samples of docs/capture.md: further inputs to check, and a detector that returns a struct.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>

#include "capture/check.includes.h"
#include "capture/free.includes.h"
#include "capture/road.includes.h"
#include "capture/states.includes.h"
#include "capture/tool.includes.h"
#include "capture/types.includes.h"
#include "in_temporary_folder.h"

namespace {

TEST(CapturePage, FurtherInputsAreChecked) {
  torch::nn::Sequential model(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4), torch::nn::Dropout(0.5));
  const auto example = torch::randn({2, 4}), large_batch = torch::randn({100, 4}),
             dark_images = torch::zeros({3, 4});
#include "capture/check.inc"
  EXPECT_EQ(captured->forward(large_batch).sizes(), large_batch.sizes());
}

TEST(CapturePage, ALengthIsFree) {
  struct Scorer : torch::nn::Module {
    torch::nn::Embedding table = register_module("table", torch::nn::Embedding(20, 8));
    torch::nn::LSTM lstm =
        register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(8, 4).batch_first(true)));
    torch::Tensor forward(const torch::Tensor& tokens) { return std::get<0>(lstm(table(tokens))).mean(1); }
  } model;
  model.eval();
  const torch::NoGradGuard no_grad;
  const auto tokens = torch::randint(20, {2, 64}, torch::kLong),
             short_text = torch::randint(20, {3, 5}, torch::kLong);
  const torch::Tensor result = torch::empty({3, 4});
  const std::array<const void*, 1> inputs = {short_text.const_data_ptr()};
  const std::array<void*, 1> outputs = {result.mutable_data_ptr()};
#include "capture/free.inc"
  EXPECT_TRUE(torch::equal(scores, model.forward(short_text)));
  EXPECT_TRUE(torch::allclose(result, scores, 1e-4, 1e-6));
}

TEST(CapturePage, TheCallerKeepsTheStates) {
  struct Filter : torch::nn::Module {
    torch::nn::LSTM lstm = register_module("lstm", torch::nn::LSTM(3, 4));
    std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(const torch::Tensor& x,
                                                                    const torch::Tensor& first_h,
                                                                    const torch::Tensor& first_c) {
      const auto [y, states] = lstm(x, std::make_tuple(first_h, first_c));
      return {y, std::get<0>(states), std::get<1>(states)};
    }
  } model;
  model.eval();
  const torch::NoGradGuard no_grad;
  const auto x = torch::randn({1, 2, 3});
  auto h = torch::zeros({1, 2, 4}), c = torch::zeros({1, 2, 4});
  const std::vector<torch::Tensor> sensor = {x, torch::randn({1, 2, 3}), torch::randn({1, 2, 3})};
  const torch::Tensor zeros = torch::zeros({1, 2, 4});
#include "capture/states.inc"
  EXPECT_TRUE(torch::allclose(h, std::get<1>(model.forward(torch::cat(sensor), zeros, zeros)), 1e-4, 1e-6));
}

TEST(CapturePage, AStructIsReturned) {
  const auto images = torch::randn({2, 3, 5, 5});
#include "capture/types.inc"
  EXPECT_TRUE(torch::equal(found.boxes, detector.forward(images).boxes));
  EXPECT_TRUE(torch::equal(found.scores, detector.forward(images).scores));
}

TEST(CapturePage, TheWholeRoadIsTried) {
  torch::nn::Sequential model(torch::nn::Conv2d(1, 16, 3), torch::nn::ReLU(), torch::nn::Flatten(),
                              torch::nn::Linear(16 * 36, 10));
  const auto captured = ulp::capture(model, {torch::randn({2, 1, 8, 8})});
#include "capture/road.inc"
  EXPECT_TRUE(phone);
  EXPECT_TRUE(some.works());
  EXPECT_LT(some.steps.size(), report.steps.size());
}

TEST(CapturePage, AModelIsAFileForTheTool) {
  const ulp::docs::InTemporaryFolder folder;
  torch::nn::Sequential model(torch::nn::Conv2d(1, 4, 3), torch::nn::ReLU(), torch::nn::Flatten(),
                              torch::nn::Linear(4 * 26 * 26, 10));
#include "capture/tool.inc"
  const ulp::app::LoadedModel loaded = ulp::app::load_model_file("own_model.safetensors");
  const torch::Tensor images = torch::randn({3, 1, 28, 28});
  EXPECT_EQ(loaded.spec.name, "own_net");
  EXPECT_TRUE(torch::equal(loaded.forward(images), model->forward(images)));
}

}  // namespace
