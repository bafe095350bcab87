// A single-shot detector: heads on two feature maps, boxes decoded against anchors where it is not training.
#include "networks.h"

namespace ulp::test::ssd_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct ConvBnReluImpl : nn::Module {
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d bn{nullptr};

  ConvBnReluImpl(int64_t in, int64_t out, int64_t stride = 1) {
    conv = register_module("conv",
                           nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false)));
    bn = register_module("bn", nn::BatchNorm2d(out));
  }
  Tensor forward(const Tensor& x) { return bn(conv(x)).relu_(); }
};
TORCH_MODULE(ConvBnRelu);

struct Detections {
  Tensor boxes, scores;
};

struct SsdImpl : nn::Module {
  nn::Sequential trunk;
  ConvBnRelu deeper{nullptr};
  nn::ModuleList box_heads, class_heads;
  Tensor anchors;
  int64_t classes;

  explicit SsdImpl(int64_t num_classes, const std::vector<double>& ratios = {0.5, 2.0})
      : classes(num_classes) {
    trunk = register_module("trunk",
                            nn::Sequential(ConvBnRelu(3, 8, 2), ConvBnRelu(8, 16, 2), ConvBnRelu(16, 16)));
    deeper = register_module("deeper", ConvBnRelu(16, 24, 2));
    register_module("box_heads", box_heads);
    register_module("class_heads", class_heads);
    const auto per_cell = static_cast<int64_t>(ratios.size());
    for (const int64_t width : {16, 24}) {
      box_heads->push_back(nn::Conv2d(nn::Conv2dOptions(width, per_cell * 4, 3).padding(1)));
      class_heads->push_back(nn::Conv2d(nn::Conv2dOptions(width, per_cell * classes, 3).padding(1)));
    }
    std::vector<Tensor> levels;
    for (const int64_t side : {8, 4}) levels.push_back(make_anchors(side, ratios));
    anchors = register_buffer("anchors", torch::cat(levels));
  }

  static Tensor make_anchors(int64_t side, const std::vector<double>& ratios) {
    const Tensor at = (torch::arange(side, torch::kFloat) + 0.5) / side;
    const auto grid = torch::meshgrid({at, at}, "ij");
    std::vector<Tensor> boxes;
    for (const double ratio : ratios) {
      const Tensor width = torch::full({side, side}, 1.5 / side * std::sqrt(ratio));
      const Tensor height = torch::full({side, side}, 1.5 / side / std::sqrt(ratio));
      boxes.push_back(torch::stack({grid[1], grid[0], width, height}, -1));
    }
    return torch::stack(boxes, 2).view({-1, 4});
  }

  Tensor decode(const Tensor& deltas) const {
    using namespace torch::indexing;
    const Tensor priors = anchors.index({Slice(), Slice(2, None)});
    const Tensor centre =
        anchors.index({Slice(), Slice(None, 2)}) + deltas.index({"...", Slice(None, 2)}) * 0.1 * priors;
    const Tensor size = priors * torch::exp(deltas.index({"...", Slice(2, 4)}) * 0.2);
    return torch::cat({centre - size / 2, centre + size / 2}, -1).clamp(0, 1);
  }

  Detections forward(const Tensor& images) {
    const int64_t batch = images.size(0);
    std::vector<Tensor> maps{trunk->forward(images)};
    maps.push_back(deeper(maps.back()));
    std::vector<Tensor> boxes, scores;
    for (size_t i = 0; i < maps.size(); ++i) {
      const Tensor box = box_heads[i]->as<nn::Conv2d>()->forward(maps[i]);
      const Tensor score = class_heads[i]->as<nn::Conv2d>()->forward(maps[i]);
      boxes.push_back(box.permute({0, 2, 3, 1}).contiguous().view({batch, -1, 4}));
      scores.push_back(score.permute({0, 2, 3, 1}).contiguous().view({batch, -1, classes}));
    }
    const Tensor deltas = torch::cat(boxes, 1), logits = torch::cat(scores, 1);
    if (is_training()) return {deltas, logits};
    return {decode(deltas), torch::softmax(logits, -1)};
  }
};
TORCH_MODULE(Ssd);

}  // namespace
}  // namespace ulp::test::ssd_net

ulp::test::Network ulp::test::ssd() {
  const auto make = [] {
    ssd_net::Ssd model(4);
    return Instance{model.ptr(), [model](const std::vector<torch::Tensor>& inputs) mutable {
                      const ssd_net::Detections found = model->forward(inputs[0]);
                      return c10::IValue(std::make_tuple(found.boxes, found.scores));
                    }};
  };
  return {"ssd", make, normal({{3, 32, 32}})};
}
