// Transfer learning on a quantized backbone: a network is trained on one task, its feature extractor is
// quantized to int8 and frozen, and a small float head learns another task on top of the integers. Both run
// as one engine at the end. The data is made up: 16x16 images with a bright quadrant; first the quadrant is
// to be told, then whether the bright part lies on the diagonal.
#include <torch/torch.h>
#include <ulp/ulp.h>

#include <cstdio>
#include <vector>

namespace nn = torch::nn;

struct Batch {
  torch::Tensor images, quadrants, diagonal;
};

static Batch make_batch(int64_t size) {
  Batch batch{torch::randn({size, 1, 16, 16}), torch::randint(4, {size}), {}};
  for (int64_t i = 0; i < size; ++i) {
    const auto quadrant = batch.quadrants[i].item<int64_t>();
    batch.images[i][0].narrow(0, quadrant / 2 * 8, 8).narrow(1, quadrant % 2 * 8, 8) += 0.75;
  }
  batch.diagonal = batch.quadrants.eq(0).logical_or(batch.quadrants.eq(3)).to(torch::kLong);
  return batch;
}

static nn::Sequential make_backbone() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1).bias(false)), nn::BatchNorm2d(16),
                        nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)),
                        nn::ReLU(), nn::AdaptiveAvgPool2d(2), nn::Flatten());
}

/// The int8 backbone with the head, for one capture of both.
struct Transferred : nn::Module {
  Transferred(std::shared_ptr<ulp::graph::GraphModule> quantized, nn::Linear trained)
      : backbone(register_module("backbone", std::move(quantized))),
        head(register_module("head", std::move(trained))) {}
  torch::Tensor forward(const torch::Tensor& images) { return head(backbone->forward(images)); }
  std::shared_ptr<ulp::graph::GraphModule> backbone;
  nn::Linear head;
};

static int correct(const torch::Tensor& logits, const torch::Tensor& labels) {
  return logits.argmax(1).eq(labels).sum().item<int>();
}

int main() {
  torch::manual_seed(0);
  auto backbone = make_backbone();
  nn::Linear first_head(128, 4);

  // The first task, in float.
  std::vector<torch::Tensor> parameters = backbone->parameters();
  for (const auto& parameter : first_head->parameters()) parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 60; ++step) {
    const Batch batch = make_batch(64);
    optimizer.zero_grad();
    nn::functional::cross_entropy(first_head(backbone->forward(batch.images)), batch.quadrants).backward();
    optimizer.step();
  }
  backbone->eval();

  // The backbone in int8: it has no parameters any more, only codes and scales.
  const Batch calibration = make_batch(256);
  auto prepared =
      ulp::quant::prepare(ulp::capture(backbone, {calibration.images}), ulp::quant::Recipe::x86_int8());
  prepared->forward(calibration.images);
  const auto quantized = ulp::quant::convert(prepared);
  std::printf("backbone: %zu parameters, %zu buffers\n", quantized->parameters().size(),
              quantized->buffers().size());

  // The second task: only the head learns. Frozen features need no graph of gradients.
  nn::Linear head(128, 2);
  torch::optim::SGD head_optimizer(head->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < 150; ++step) {
    const Batch batch = make_batch(64);
    torch::Tensor features;
    {
      const torch::NoGradGuard frozen;
      features = quantized->forward(batch.images);
    }
    head_optimizer.zero_grad();
    nn::functional::cross_entropy(head(features), batch.diagonal).backward();
    head_optimizer.step();
  }

  // One engine: an int8 backbone and a float head.
  Transferred model(quantized, head);
  model.eval();
  const Batch test = make_batch(256);
  ulp::lower(*ulp::capture(model, {test.images})).save("transfer.ulp");
  ulp::runtime::Engine engine("transfer.ulp");
  const torch::Tensor logits = torch::empty({256, 2});
  const void* in = test.images.const_data_ptr();
  void* out = logits.mutable_data_ptr();
  engine.run(256, {&in, 1}, {&out, 1});

  const torch::NoGradGuard no_grad;
  const int eager = correct(model.forward(test.images), test.diagonal);
  std::printf("second task: %d of 256 correct in LibTorch, %d in the engine\n", eager,
              correct(logits, test.diagonal));
  return quantized->parameters().empty() && correct(logits, test.diagonal) > 200 ? 0 : 1;
}
