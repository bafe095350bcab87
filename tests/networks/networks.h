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
  /// Gradients of the graph are the model's within this share of the largest; 0: bit for bit. For a backward
  /// pass that is written by hand, in another order of operations than LibTorch's.
  double gradients_within = 0;
  /// In bf16 this share of the whole numbers among the results may be others: places of the nearest, of which
  /// two are as near but for rounding. Samples with such are not compared further.
  double near_ties = 0;
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
Network alphazero();
Network autoencoder();
Network bert();
Network bifpn();
Network captioning();
Network convnext();
Network cyclegan();
Network dcgan_discriminator();
Network dcgan_generator();
Network ddpm();
Network deeplab();
Network densenet();
Network dit();
Network ecg();
Network efficientnet();
Network forecast();
Network glow();
Network gpt();
Network gpt_scratch();
Network graph_conv();
Network gru_attention();
Network keypoints();
Network llama();
Network llama_complex();
Network lstm_cells();
Network mae();
Network mixture_of_experts();
Network mobilenet_v3();
Network nerf();
Network neumf();
Network pixelcnn();
Network pointnet();
Network realnvp();
Network recommender();
Network recurrent_policy();
Network rnn_lm();
Network se_resnet();
Network siamese();
Network speech_transformer();
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
Network vqvae2();
Network wavenet();
Network yolo();
Network yolov8();

}  // namespace ulp::test
