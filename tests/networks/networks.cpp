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
                                           alphazero(),
                                           autoencoder(),
                                           bert(),
                                           bifpn(),
                                           captioning(),
                                           convnext(),
                                           cyclegan(),
                                           dcgan_discriminator(),
                                           dcgan_generator(),
                                           ddpm(),
                                           deeplab(),
                                           densenet(),
                                           dit(),
                                           ecg(),
                                           efficientnet(),
                                           forecast(),
                                           glow(),
                                           gpt(),
                                           gpt_scratch(),
                                           graph_conv(),
                                           gru_attention(),
                                           keypoints(),
                                           llama(),
                                           llama_complex(),
                                           lstm_cells(),
                                           mae(),
                                           mixture_of_experts(),
                                           mobilenet_v3(),
                                           nerf(),
                                           neumf(),
                                           pixelcnn(),
                                           pointnet(),
                                           realnvp(),
                                           recommender(),
                                           recurrent_policy(),
                                           rnn_lm(),
                                           se_resnet(),
                                           siamese(),
                                           speech_transformer(),
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
                                           vqvae2(),
                                           wavenet(),
                                           yolo(),
                                           yolov8()};
  return all;
}

}  // namespace ulp::test
