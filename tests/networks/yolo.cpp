// A detector of the YOLO family: C2f blocks, a neck that upsamples and concatenates, and in
// eval mode boxes from distributions over distances.
#include "networks.h"

namespace ulp::test::yolo_net {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

struct ConvImpl : nn::Module {
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d bn{nullptr};
  nn::SiLU act;

  ConvImpl(int64_t in, int64_t out, int64_t k = 1, int64_t s = 1) {
    conv = register_module("conv",
                           nn::Conv2d(nn::Conv2dOptions(in, out, k).stride(s).padding(k / 2).bias(false)));
    bn = register_module("bn", nn::BatchNorm2d(nn::BatchNorm2dOptions(out).eps(1e-3).momentum(0.03)));
    register_module("act", act);
  }
  Tensor forward(Tensor x) { return act(bn(conv(x))); }
};
TORCH_MODULE(Conv);

struct BottleneckImpl : nn::Module {
  Conv cv1{nullptr}, cv2{nullptr};
  bool add;

  BottleneckImpl(int64_t channels, bool shortcut) : add(shortcut) {
    cv1 = register_module("cv1", Conv(channels, channels, 3));
    cv2 = register_module("cv2", Conv(channels, channels, 3));
  }
  Tensor forward(Tensor x) { return add ? x + cv2(cv1(x)) : cv2(cv1(x)); }
};
TORCH_MODULE(Bottleneck);

struct C2fImpl : nn::Module {
  Conv cv1{nullptr}, cv2{nullptr};
  nn::ModuleList m;

  C2fImpl(int64_t in, int64_t out, int64_t n, bool shortcut) {
    cv1 = register_module("cv1", Conv(in, out));
    cv2 = register_module("cv2", Conv((2 + n) * (out / 2), out));
    for (int64_t i = 0; i < n; ++i) m->push_back(Bottleneck(out / 2, shortcut));
    register_module("m", m);
  }
  Tensor forward(Tensor x) {
    std::vector<Tensor> y = cv1(x).chunk(2, 1);
    for (const auto& block : *m) y.push_back(block->as<Bottleneck>()->forward(y.back()));
    return cv2(torch::cat(y, 1));
  }
};
TORCH_MODULE(C2f);

struct YoloImpl : nn::Module {
  static constexpr int64_t kClasses = 3, kBins = 4;
  Conv stem{nullptr}, down1{nullptr}, down2{nullptr};
  C2f stage1{nullptr}, stage2{nullptr}, neck{nullptr};
  nn::Conv2d head_small{nullptr}, head_large{nullptr};
  nn::Upsample upsample =
      nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}).mode(torch::kNearest));

  YoloImpl() {
    stem = register_module("stem", Conv(3, 8, 3, 2));
    down1 = register_module("down1", Conv(8, 16, 3, 2));
    stage1 = register_module("stage1", C2f(16, 16, 1, true));
    down2 = register_module("down2", Conv(16, 24, 3, 2));
    stage2 = register_module("stage2", C2f(24, 24, 2, true));
    neck = register_module("neck", C2f(40, 16, 1, false));
    head_small = register_module("head_small", nn::Conv2d(nn::Conv2dOptions(16, 4 * kBins + kClasses, 1)));
    head_large = register_module("head_large", nn::Conv2d(nn::Conv2dOptions(24, 4 * kBins + kClasses, 1)));
    register_module("upsample", upsample);
  }

  Tensor decode(const std::vector<Tensor>& maps) {
    std::vector<Tensor> levels, anchors, strides;
    const int64_t step[] = {4, 8};
    for (size_t i = 0; i < maps.size(); ++i) {
      const int64_t h = maps[i].size(2), w = maps[i].size(3);
      levels.push_back(maps[i].view({maps[i].size(0), 4 * kBins + kClasses, -1}));
      auto sx = torch::arange(w, maps[i].options()) + 0.5, sy = torch::arange(h, maps[i].options()) + 0.5;
      auto grid = torch::meshgrid({sy, sx}, "ij");
      anchors.push_back(torch::stack({grid[1], grid[0]}, -1).view({-1, 2}));
      strides.push_back(torch::full({h * w, 1}, step[i], maps[i].options()));
    }
    const Tensor all = torch::cat(levels, 2);
    const Tensor anchor = torch::cat(anchors).t().unsqueeze(0), stride = torch::cat(strides).t();
    const auto parts = all.split_with_sizes({4 * kBins, kClasses}, 1);
    const Tensor bins = parts[0].view({-1, 4, kBins, all.size(2)}).transpose(2, 1).softmax(1);
    const Tensor distance = (bins * torch::arange(kBins, bins.options()).view({1, kBins, 1, 1})).sum(1);
    const auto corners = distance.chunk(2, 1);
    const Tensor low = anchor - corners[0], high = anchor + corners[1];
    return torch::cat({torch::cat({(low + high) / 2, high - low}, 1) * stride, parts[1].sigmoid()}, 1);
  }

  std::vector<Tensor> forward(Tensor x) {
    auto fine = stage1(down1(stem(x)));
    auto coarse = stage2(down2(fine));
    auto merged = neck(torch::cat({upsample(coarse), fine}, 1));
    std::vector<Tensor> maps{head_small(merged), head_large(coarse)};
    if (is_training()) return maps;
    return {decode(maps)};
  }
};
TORCH_MODULE(Yolo);

}  // namespace
}  // namespace ulp::test::yolo_net

ulp::test::Network ulp::test::yolo() {
  return {"yolo", [] { return instance(yolo_net::Yolo().ptr()); }, normal({{3, 32, 32}})};
}
