// YOLOv8 from a table of layers: each has the layers that it reads, a pyramid in both directions, heads apart
// for boxes and classes, distances by a convolution that is not trained, and anchors that are kept between
// calls.
#include "networks.h"

namespace ulp::test::yolov8_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct ConvImpl : nn::Module {
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d bn{nullptr};
  ConvImpl(int64_t in, int64_t out, int64_t k = 1, int64_t s = 1) {
    conv = register_module("conv",
                           nn::Conv2d(nn::Conv2dOptions(in, out, k).stride(s).padding(k / 2).bias(false)));
    bn = register_module("bn", nn::BatchNorm2d(nn::BatchNorm2dOptions(out).eps(0.001).momentum(0.03)));
  }
  Tensor forward(Tensor x) { return torch::silu_(x = bn(conv(x))); }
};
TORCH_MODULE(Conv);

struct C2fImpl : nn::Module {
  int64_t c;
  Conv cv1{nullptr}, cv2{nullptr}, b1{nullptr}, b2{nullptr};
  bool shortcut;
  C2fImpl(int64_t in, int64_t out, bool add) : c(out / 2), shortcut(add) {
    cv1 = register_module("cv1", Conv(in, 2 * c));
    b1 = register_module("b1", Conv(c, c, 3));
    b2 = register_module("b2", Conv(c, c, 3));
    cv2 = register_module("cv2", Conv(3 * c, out));
  }
  Tensor forward(const Tensor& x) {
    auto y = cv1(x).split({c, c}, 1);
    auto z = b2(b1(y[1]));
    y.emplace_back(shortcut ? z.add_(y[1]) : z);
    return cv2(torch::cat(y, 1));
  }
};
TORCH_MODULE(C2f);

struct SppfImpl : nn::Module {
  Conv cv1{nullptr}, cv2{nullptr};
  nn::MaxPool2d m{nn::MaxPool2dOptions(5).stride(1).padding(2)};
  SppfImpl(int64_t in, int64_t out) {
    cv1 = register_module("cv1", Conv(in, in / 2));
    cv2 = register_module("cv2", Conv(in * 2, out));
    register_module("m", m);
  }
  Tensor forward(const Tensor& x) {
    std::vector<Tensor> y{cv1(x)};
    for (int i = 0; i < 3; ++i) y.push_back(m(y[static_cast<size_t>(i)]));
    return cv2(torch::cat(y, 1));
  }
};
TORCH_MODULE(Sppf);

struct UpImpl : nn::Module {
  Tensor forward(const Tensor& x) {
    return F::interpolate(
        x, F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest));
  }
};
TORCH_MODULE(Up);

/// The expectation of a distribution over distances.
struct DflImpl : nn::Module {
  int64_t c1;
  nn::Conv2d conv{nullptr};
  explicit DflImpl(int64_t bins) : c1(bins) {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(bins, 1, 1).bias(false)));
    conv->weight.requires_grad_(false);
    conv->weight.data().copy_(torch::arange(bins, torch::kFloat).view({1, bins, 1, 1}));
  }
  Tensor forward(const Tensor& x) {
    const auto b = x.size(0), a = x.size(2);
    return conv(x.view({b, 4, c1, a}).transpose(2, 1).softmax(1)).view({b, 4, a});
  }
};
TORCH_MODULE(Dfl);

struct DetectImpl : nn::Module {
  int64_t nc, reg_max = 4;
  std::vector<int64_t> stride{4, 8};
  nn::ModuleList cv2, cv3;
  Dfl dfl{nullptr};
  Tensor anchors, strides;
  std::vector<int64_t> shape;

  DetectImpl(int64_t classes, const std::vector<int64_t>& channels) : nc(classes) {
    for (const auto x : channels) {
      cv2->push_back(nn::Sequential(Conv(x, 12, 3), nn::Conv2d(nn::Conv2dOptions(12, 4 * reg_max, 1))));
      cv3->push_back(nn::Sequential(Conv(x, 12, 3), nn::Conv2d(nn::Conv2dOptions(12, nc, 1))));
    }
    register_module("cv2", cv2);
    register_module("cv3", cv3);
    dfl = register_module("dfl", Dfl(reg_max));
  }
  void make_anchors(const std::vector<Tensor>& x) {
    std::vector<Tensor> points, steps;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto h = x[i].size(2), w = x[i].size(3);
      const auto sx = torch::arange(w, x[i].options()) + 0.5, sy = torch::arange(h, x[i].options()) + 0.5;
      const auto grid = torch::meshgrid({sy, sx}, "ij");
      points.push_back(torch::stack({grid[1], grid[0]}, -1).view({-1, 2}));
      steps.push_back(torch::full({h * w, 1}, stride[i], x[i].options()));
    }
    anchors = torch::cat(points).transpose(0, 1);
    strides = torch::cat(steps).transpose(0, 1);
  }
  std::vector<Tensor> forward(std::vector<Tensor> x) {
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = torch::cat(
          {cv2[i]->as<nn::Sequential>()->forward(x[i]), cv3[i]->as<nn::Sequential>()->forward(x[i])}, 1);
    if (is_training()) return x;
    const auto now = x[0].sizes().slice(1).vec();
    if (shape != now) {
      make_anchors(x);
      shape = now;
    }
    std::vector<Tensor> flat;
    for (const auto& xi : x) flat.push_back(xi.view({xi.size(0), nc + reg_max * 4, -1}));
    const auto parts = torch::cat(flat, 2).split_with_sizes({reg_max * 4, nc}, 1);
    const auto distance = dfl(parts[0]).chunk(2, 1);
    const auto x1y1 = anchors.unsqueeze(0) - distance[0], x2y2 = anchors.unsqueeze(0) + distance[1];
    const auto box = torch::cat({(x1y1 + x2y2) / 2, x2y2 - x1y1}, 1) * strides;
    return {torch::cat({box, parts[1].sigmoid()}, 1)};
  }
};
TORCH_MODULE(Detect);

struct Row {
  std::vector<int> from;
  std::string type;
  int64_t out;
};

struct Yolov8Impl : nn::Module {
  std::vector<std::vector<int>> from;
  std::vector<nn::AnyModule> layers;  ///< empty: the inputs are joined
  Detect detect{nullptr};

  explicit Yolov8Impl(const std::vector<Row>& table) {
    std::vector<int64_t> channels{3};
    for (size_t i = 0; i < table.size(); ++i) {
      const auto& [sources, type, out] = table[i];
      std::vector<int64_t> in;
      for (const int f : sources)
        in.push_back(f < 0 ? channels.back() : channels[static_cast<size_t>(f) + 1]);
      nn::AnyModule layer;
      if (type == "Conv") layer = nn::AnyModule(Conv(in[0], out, 3, 2));
      if (type == "C2f") layer = nn::AnyModule(C2f(in[0], out, true));
      if (type == "C2fN") layer = nn::AnyModule(C2f(in[0], out, false));
      if (type == "SPPF") layer = nn::AnyModule(Sppf(in[0], out));
      if (type == "Up") layer = nn::AnyModule(Up());
      if (!layer.is_empty()) register_module("model" + std::to_string(i), layer.ptr());
      from.push_back(sources);
      layers.push_back(layer);
      channels.push_back(type == "Concat" ? in[0] + in[1] : type == "Up" ? in[0] : out);
    }
    detect = register_module("detect", Detect(3, std::vector<int64_t>{channels[10], channels[13]}));
  }
  std::vector<Tensor> forward(const Tensor& images) {
    std::vector<Tensor> y{images};
    for (size_t i = 0; i < layers.size(); ++i) {
      std::vector<Tensor> in;
      for (const int f : from[i]) in.push_back(f < 0 ? y.back() : y[static_cast<size_t>(f) + 1]);
      y.push_back(layers[i].is_empty() ? torch::cat(in, 1) : layers[i].forward(in[0]));
    }
    return detect(std::vector<Tensor>{y[10], y[13]});
  }
};
TORCH_MODULE(Yolov8);

}  // namespace
}  // namespace ulp::test::yolov8_net

ulp::test::Network ulp::test::yolov8() {
  const std::vector<yolov8_net::Row> table = {
      {{-1}, "Conv", 8},  {{-1}, "Conv", 12}, {{-1}, "C2f", 12},  {{-1}, "Conv", 16},
      {{-1}, "C2f", 16},  {{-1}, "SPPF", 16}, {{-1}, "Up", 0},    {{-1, 2}, "Concat", 0},
      {{-1}, "C2fN", 12}, {{-1}, "C2fN", 12}, {{-1}, "Conv", 12}, {{-1, 5}, "Concat", 0},
      {{-1}, "C2fN", 16}};
  const auto make = [table] {
    yolov8_net::Yolov8 model(table);
    const torch::NoGradGuard no_grad;
    model->eval();
    model->forward(torch::zeros({1, 3, 32, 32}));  // which makes the anchors
    model->train();
    return instance(model.ptr());
  };
  return {"yolov8", make, normal({{3, 32, 32}})};
}
