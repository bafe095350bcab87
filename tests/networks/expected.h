// What does not work yet: for a network the stages (stages.h) that fail. The tests fail for a stage that
// is not here and fails, and for one that is here and works.
#pragma once

#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace ulp::test {

inline const std::string kEngines = "engine_fp32 engine_bf16 engine_int8";
inline const std::string kEveryStage =
    "captured trains bf16_training static_int8 dynamic weight_only " + kEngines;

inline const std::map<std::string, std::string> kMissing = {
    {"actor_critic", kEngines},
    {"alexnet", kEngines},
    {"autoencoder", kEngines},
    {"bert", kEngines},
    {"convnext", kEveryStage},
    {"dcgan_discriminator", kEngines},
    {"dcgan_generator", kEngines},
    {"densenet", kEngines},
    {"ecg", kEngines},
    {"efficientnet", kEveryStage},
    {"forecast", kEngines},
    {"gpt", kEngines},
    {"graph_conv", kEngines},
    {"gru_attention", kEngines},
    {"keypoints", kEngines},
    {"llama", kEngines},
    {"lstm_cells", kEngines},
    {"mixture_of_experts", kEveryStage},
    {"mobilenet_v3", kEveryStage},
    {"pointnet", kEngines},
    {"recommender", kEngines},
    {"se_resnet", kEngines},
    {"siamese", kEngines},
    {"ssd", kEveryStage},
    {"super_resolution", kEngines},
    {"swin", kEngines},
    {"tcn", kEngines},
    {"unet_group", kEngines},
    {"unet_instance", kEngines},
    {"vae", kEveryStage},
    {"video", kEngines},
    {"vit", kEngines},
    {"wavenet", kEngines},
    {"yolo", kEveryStage},
};

/// The stages of this network in kMissing.
inline std::vector<std::string> missing_stages(const std::string& network) {
  std::vector<std::string> stages;
  const auto found = kMissing.find(network);
  std::istringstream words(found == kMissing.end() ? "" : found->second);
  for (std::string word; words >> word;) stages.push_back(word);
  return stages;
}

}  // namespace ulp::test
