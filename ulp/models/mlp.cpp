#include "ulp/models/mlp.h"

#include "ulp/models/layers.h"

namespace ulp::models {

namespace {

class Mlp final : public ImageModel {
 public:
  explicit Mlp(const MlpOptions& options) : options_(options) {
    int64_t width = options.in_channels * options.image_size * options.image_size;
    std::vector<int64_t> widths = options.hidden;
    widths.push_back(options.num_classes);
    for (size_t i = 0; i < widths.size(); ++i) {
      layers_.push_back(register_module("fc" + std::to_string(i + 1), torch::nn::Linear(width, widths[i])));
      width = widths[i];
    }
    if (options.dropout > 0) dropout_ = register_module("dropout", torch::nn::Dropout(options.dropout));
  }

  at::Tensor forward(at::Tensor x) override {
    const bool rows = x.dim() == 2 && options_.image_size == 1 && x.size(1) == options_.in_channels;
    if (!rows) check_images("mlp", x, options_.in_channels);
    x = torch::flatten(x, 1);
    for (size_t i = 0; i + 1 < layers_.size(); ++i) {
      x = torch::relu(layers_[i](x));
      if (!dropout_.is_empty()) x = dropout_(x);
    }
    return layers_.back()(x);
  }

 private:
  MlpOptions options_;
  std::vector<torch::nn::Linear> layers_;
  torch::nn::Dropout dropout_{nullptr};
};

}  // namespace

std::shared_ptr<ImageModel> make_mlp(const MlpOptions& options) {
  check_option("mlp", "in_channels", options.in_channels);
  check_option("mlp", "image_size", options.image_size);
  check_option("mlp", "num_classes", options.num_classes);
  for (int64_t width : options.hidden) check_option("mlp", "hidden", width);
  return std::make_shared<Mlp>(options);
}

}  // namespace ulp::models
