// The main job in one small program: a LibTorch model is trained in bf16, quantized to int8, saved, and run
// without LibTorch. The data is made up: two classes of 16x16 images, bright above or bright below.
#include <torch/torch.h>
#include <ulp/ulp.h>

#include <cstdio>
#include <utility>
#include <vector>

namespace nn = torch::nn;

static nn::Sequential make_model() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1).bias(false)), nn::BatchNorm2d(16),
                        nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)),
                        nn::ReLU(), nn::AdaptiveAvgPool2d(2), nn::Flatten(), nn::Linear(128, 2));
}

static std::pair<torch::Tensor, torch::Tensor> make_batch(int64_t size) {
  const torch::Tensor labels = torch::randint(2, {size});
  torch::Tensor images = torch::randn({size, 1, 16, 16});
  for (int64_t i = 0; i < size; ++i) images[i].narrow(1, labels[i].item<int64_t>() * 8, 8) += 0.5;
  return {images, labels};
}

int main() {
  torch::manual_seed(0);
  auto model = make_model();

  // Train, forward in bf16.
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 60; ++step) {
    const auto [images, labels] = make_batch(64);
    optimizer.zero_grad();
    torch::Tensor logits;
    {
      ulp::amp::Autocast autocast(torch::kCPU, torch::kBFloat16);
      logits = model->forward(images);
    }
    torch::nn::functional::cross_entropy(logits.to(torch::kFloat), labels).backward();
    optimizer.step();
  }
  model->eval();

  // Capture, calibrate, quantize, lower, save.
  const auto [images, labels] = make_batch(256);
  auto captured = ulp::capture(model, {images});
  auto prepared = ulp::quant::prepare(captured, ulp::quant::Recipe::x86_int8());
  prepared->forward(images);
  auto quantized = ulp::quant::convert(prepared);
  ulp::lower(*quantized).save("quickstart.int8.ulp");

  // Run: from here on ulp::runtime alone would do.
  ulp::runtime::Engine engine("quickstart.int8.ulp");
  std::vector<float> logits(256 * 2);
  const void* in = images.const_data_ptr();
  void* out = logits.data();
  engine.run(256, {&in, 1}, {&out, 1});

  int correct = 0;
  for (int64_t i = 0; i < 256; ++i)
    correct += (logits[2 * i + 1] > logits[2 * i]) == (labels[i].item<int64_t>() == 1);
  std::printf("int8 engine: %d of 256 correct\n", correct);
  return correct > 200 ? 0 : 1;
}
