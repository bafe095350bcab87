// Small networks of the kinds that users of LibTorch write, each as its author would have written it: none
// knows of ulp, and none is shaped after what ulp can do.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/graph/capture/capture.h"

namespace ulp::test {

/// A model with its weights, and how it is called.
struct Instance {
  std::shared_ptr<torch::nn::Module> root;
  graph::Forward forward;
};

/// One kind of network.
struct Network {
  std::string name;
  std::function<Instance()> make;  ///< weights are drawn from the global random state
  /// Inputs of a batch size, with the batch in dimension 0 of each, drawn from the global random state.
  std::function<std::vector<torch::Tensor>(int64_t batch)> inputs;
};

/// A model whose forward takes tensors and returns a tensor, a tuple or a list.
template <typename Model>
Instance instance(std::shared_ptr<Model> model) {
  return {model,
          [model](const std::vector<torch::Tensor>& inputs) { return graph::detail::call(*model, inputs); }};
}

/// Inputs of normal numbers, one for each list of sizes behind the batch.
std::function<std::vector<torch::Tensor>(int64_t)> normal(std::vector<std::vector<int64_t>> sizes);
/// One input of ids in [0, limit).
std::function<std::vector<torch::Tensor>(int64_t)> ids(int64_t limit, std::vector<int64_t> sizes);

/// All of them, in alphabetical order.
const std::vector<Network>& networks();

Network actor_critic();
Network alexnet();
Network autoencoder();
Network bert();
Network convnext();
Network dcgan_discriminator();
Network dcgan_generator();
Network densenet();
Network ecg();
Network efficientnet();
Network forecast();
Network gpt();
Network graph_conv();
Network gru_attention();
Network keypoints();
Network llama();
Network lstm_cells();
Network mixture_of_experts();
Network mobilenet_v3();
Network pointnet();
Network recommender();
Network se_resnet();
Network siamese();
Network ssd();
Network super_resolution();
Network swin();
Network tcn();
Network unet_group();
Network unet_instance();
Network vae();
Network vgg();
Network video();
Network vit();
Network wavenet();
Network yolo();

}  // namespace ulp::test
