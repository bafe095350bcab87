// Small tasks that the tests of training share.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "temporary_folder.h"
#include "ulp/io/dataset.h"
#include "ulp/models/registry.h"
#include "ulp/train/trainer.h"

namespace ulp::test {

/// 8x8 images of four classes: class c is a bright bar in row 2 c, on noise.
inline io::ImageDataset bars(int64_t count = 64) {
  at::Generator random = at::detail::createCPUGenerator(7);
  io::ImageDataset data;
  data.num_classes = 4;
  data.mean = {0.2};
  data.std = {0.3};
  data.labels = torch::randint(0, 4, {count}, random, torch::kLong);
  data.images = torch::randint(0, 64, {count, 1, 8, 8}, random, torch::kByte);
  for (int64_t i = 0; i < count; ++i) data.images[i][0][2 * data.labels[i].item<int64_t>()].fill_(255);
  return data;
}

inline std::shared_ptr<models::ImageModel> small_model(const std::string& name = "mlp") {
  torch::manual_seed(5);
  return models::make_model(name, {.in_channels = 1, .num_classes = 4, .image_size = 8});
}

/// Parameters and buffers, one after the other, in fp32.
inline at::Tensor weights(const torch::nn::Module& model) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& tensor : model.parameters()) all.push_back(tensor.detach().flatten().to(at::kFloat));
  for (const at::Tensor& tensor : model.buffers()) all.push_back(tensor.detach().flatten().to(at::kFloat));
  return torch::cat(all);
}

/// Steps until next_step() is `last`.
inline void run_to(train::Trainer& trainer, int64_t last) {
  while (trainer.next_step() < last) trainer.step();
}

}  // namespace ulp::test
