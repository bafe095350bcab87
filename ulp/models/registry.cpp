#include "ulp/models/registry.h"

#include <map>

#include "ulp/base/error.h"
#include "ulp/models/layers.h"
#include "ulp/models/lenet5.h"
#include "ulp/models/makers.h"
#include "ulp/models/mlp.h"
#include "ulp/models/resnet.h"

namespace ulp::models {

namespace {

std::map<std::string, Maker>& makers() {
  static std::map<std::string, Maker> all = {
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
  };
  return all;
}

}  // namespace

MoreModels::MoreModels(std::span<const NamedMaker> models) {
  for (const NamedMaker& model : models) makers().emplace(model.name, model.make);
}

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

bool is_classifier(const std::string& name) {
  return name != "unet";
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : makers()) names.push_back(name);
  return names;
}

}  // namespace ulp::models
