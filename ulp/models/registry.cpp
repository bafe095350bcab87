#include "ulp/models/registry.h"

#include <functional>
#include <map>

#include "ulp/base/error.h"
#include "ulp/models/binary_lenet5.h"
#include "ulp/models/binary_resnet.h"
#include "ulp/models/googlenet.h"
#include "ulp/models/inception_v3.h"
#include "ulp/models/layers.h"
#include "ulp/models/lenet5.h"
#include "ulp/models/mlp.h"
#include "ulp/models/mobilenet_v2.h"
#include "ulp/models/resnet.h"
#include "ulp/models/shufflenet_v2.h"
#include "ulp/models/unet.h"

namespace ulp::models {

namespace {

constexpr int64_t kSmallInput = 64;

std::shared_ptr<ImageModel> make_unet_for(const ModelOptions& options) {
  UNetOptions unet{.in_channels = options.in_channels, .num_classes = options.num_classes};
  while (unet.depth > 1 && options.image_size % (int64_t{1} << unet.depth) != 0) --unet.depth;
  return make_unet(unet);
}

using Maker = std::function<std::shared_ptr<ImageModel>(const ModelOptions&)>;

const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> all = {
      {"mlp",
       [](const ModelOptions& o) {
         return make_mlp(
             {.in_channels = o.in_channels, .image_size = o.image_size, .num_classes = o.num_classes});
       }},
      {"lenet5",
       [](const ModelOptions& o) {
         return make_lenet5(
             {.in_channels = o.in_channels, .image_size = o.image_size, .num_classes = o.num_classes});
       }},
      {"binary_lenet5",
       [](const ModelOptions& o) {
         return make_binary_lenet5(
             {.in_channels = o.in_channels, .image_size = o.image_size, .num_classes = o.num_classes});
       }},
      {"binary_resnet20",
       [](const ModelOptions& o) {
         return make_binary_resnet20({.in_channels = o.in_channels, .num_classes = o.num_classes});
       }},
      {"birealnet",
       [](const ModelOptions& o) {
         return make_birealnet(o.in_channels, o.num_classes, /*small_input=*/o.image_size < kSmallInput);
       }},
      {"resnet8",
       [](const ModelOptions& o) {
         return make_resnet20({.name = "resnet8",
                               .in_channels = o.in_channels,
                               .num_classes = o.num_classes,
                               .blocks = {1, 1, 1}});
       }},
      {"resnet14",
       [](const ModelOptions& o) {
         return make_resnet20({.name = "resnet14",
                               .in_channels = o.in_channels,
                               .num_classes = o.num_classes,
                               .widths = {32, 64, 128},
                               .blocks = {2, 2, 2},
                               .stem_stride = 2});
       }},
      {"resnet20",
       [](const ModelOptions& o) {
         return make_resnet20(
             {.name = "resnet20", .in_channels = o.in_channels, .num_classes = o.num_classes});
       }},
      {"resnet18",
       [](const ModelOptions& o) {
         return make_resnet18({o.in_channels, o.num_classes, /*small_input=*/o.image_size < kSmallInput});
       }},
      {"resnet50",
       [](const ModelOptions& o) {
         return make_resnet50({o.in_channels, o.num_classes, /*small_input=*/o.image_size < kSmallInput});
       }},
      {"resnext50_32x4d",
       [](const ModelOptions& o) {
         return make_resnext50_32x4d(
             {o.in_channels, o.num_classes, /*small_input=*/o.image_size < kSmallInput});
       }},
      {"googlenet",
       [](const ModelOptions& o) {
         return make_googlenet({.in_channels = o.in_channels,
                                .num_classes = o.num_classes,
                                .aux_logits = false,
                                .small_input = o.image_size < kSmallInput});
       }},
      {"inception_v3",
       [](const ModelOptions& o) {
         return make_inception_v3({.in_channels = o.in_channels,
                                   .num_classes = o.num_classes,
                                   .aux_logits = false,
                                   .small_input = o.image_size < kInceptionV3SmallestSide});
       }},
      {"shufflenet_v2_x1_0",
       [](const ModelOptions& o) {
         return make_shufflenet_v2_x1_0(
             {o.in_channels, o.num_classes, /*small_input=*/o.image_size < kSmallInput});
       }},
      {"mobilenet_v2",
       [](const ModelOptions& o) {
         return make_mobilenet_v2({.in_channels = o.in_channels,
                                   .num_classes = o.num_classes,
                                   .small_input = o.image_size < kSmallInput});
       }},
      {"unet", make_unet_for},
  };
  return all;
}

}  // namespace

std::shared_ptr<ImageModel> make_model(const std::string& name, const ModelOptions& options) {
  const auto found = makers().find(name);
  if (found == makers().end()) {
    std::string known;
    for (const std::string& one : model_names()) known += (known.empty() ? "" : ", ") + one;
    fail("models.make_model", "expected one of ", known, ", got '", name, "'");
  }
  check_option(name.c_str(), "image_size", options.image_size);
  return found->second(options);
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : makers()) names.push_back(name);
  return names;
}

}  // namespace ulp::models
