// The list of networks.
#include "networks.h"

namespace ulp::test {

using Inputs = std::function<std::vector<torch::Tensor>(int64_t)>;

Inputs normal(std::vector<std::vector<int64_t>> sizes) {
  return [sizes = std::move(sizes)](int64_t batch) {
    std::vector<torch::Tensor> inputs;
    for (std::vector<int64_t> shape : sizes) {
      shape.insert(shape.begin(), batch);
      inputs.push_back(torch::randn(shape));
    }
    return inputs;
  };
}

Inputs ids(int64_t limit, std::vector<int64_t> sizes) {
  return [limit, sizes = std::move(sizes)](int64_t batch) {
    std::vector<int64_t> shape = sizes;
    shape.insert(shape.begin(), batch);
    return std::vector<torch::Tensor>{torch::randint(0, limit, shape, torch::kLong)};
  };
}

const std::vector<Network>& networks() {
  static const std::vector<Network> all = {actor_critic(),
                                           alexnet(),
                                           autoencoder(),
                                           bert(),
                                           convnext(),
                                           dcgan_discriminator(),
                                           dcgan_generator(),
                                           densenet(),
                                           ecg(),
                                           efficientnet(),
                                           forecast(),
                                           gpt(),
                                           graph_conv(),
                                           gru_attention(),
                                           keypoints(),
                                           llama(),
                                           lstm_cells(),
                                           mixture_of_experts(),
                                           mobilenet_v3(),
                                           pointnet(),
                                           recommender(),
                                           se_resnet(),
                                           siamese(),
                                           ssd(),
                                           super_resolution(),
                                           swin(),
                                           tcn(),
                                           unet_group(),
                                           unet_instance(),
                                           vae(),
                                           vgg(),
                                           video(),
                                           vit(),
                                           wavenet(),
                                           yolo()};
  return all;
}

}  // namespace ulp::test
