// The reference networks that the demo does without.
#include "ulp/models/binary_lenet5.h"
#include "ulp/models/binary_resnet.h"
#include "ulp/models/googlenet.h"
#include "ulp/models/inception_v3.h"
#include "ulp/models/makers.h"
#include "ulp/models/mobilenet_v2.h"
#include "ulp/models/shufflenet_v2.h"
#include "ulp/models/unet.h"

namespace ulp::models {

namespace {

std::shared_ptr<ImageModel> make_unet_for(const ModelOptions& options) {
  UNetOptions unet{.in_channels = options.in_channels, .num_classes = options.num_classes};
  while (unet.depth > 1 && options.image_size % (int64_t{1} << unet.depth) != 0) --unet.depth;
  return make_unet(unet);
}

constexpr NamedMaker kMoreModels[] = {
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
    {"googlenet",
     [](const ModelOptions& o) -> std::shared_ptr<ImageModel> {
       return make_googlenet({.in_channels = o.in_channels,
                              .num_classes = o.num_classes,
                              .aux_logits = false,
                              .small_input = o.image_size < kSmallInput});
     }},
    {"inception_v3",
     [](const ModelOptions& o) -> std::shared_ptr<ImageModel> {
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
const MoreModels kAddMoreModels(kMoreModels);

}  // namespace

}  // namespace ulp::models
