// A radiance field: points along rays, encoded by sines of many frequencies, a perceptron with a skip, and
// the colours of the rays from the densities along them.
#include "networks.h"

namespace ulp::test::nerf_net {
namespace {

using torch::Tensor;
using torch::indexing::Ellipsis;
using torch::indexing::None;
using torch::indexing::Slice;
namespace nn = torch::nn;

struct Embedder {
  std::vector<std::function<Tensor(const Tensor&)>> functions;
  explicit Embedder(int frequencies) {
    functions.emplace_back([](const Tensor& x) { return x; });
    const auto bands = torch::pow(2., torch::linspace(0., frequencies - 1, frequencies));
    for (int i = 0; i < frequencies; ++i) {
      const auto freq = bands[i].item<float>();
      functions.emplace_back([freq](const Tensor& x) { return torch::sin(x * freq); });
      functions.emplace_back([freq](const Tensor& x) { return torch::cos(x * freq); });
    }
  }
  int64_t size() const { return 3 * static_cast<int64_t>(functions.size()); }
  Tensor operator()(const Tensor& x) const {
    std::vector<Tensor> parts;
    for (const auto& f : functions) parts.push_back(f(x));
    return torch::cat(parts, -1);
  }
};

struct NerfImpl : nn::Module {
  int64_t samples;
  double near_plane = 2, far_plane = 6;
  Embedder points{4}, views{2};
  nn::ModuleList pts_linears, views_linears;
  nn::Linear feature_linear{nullptr}, alpha_linear{nullptr}, rgb_linear{nullptr};
  std::vector<size_t> skips{2};

  NerfImpl(int64_t width, int64_t depth, int64_t points_a_ray) : samples(points_a_ray) {
    pts_linears->push_back(nn::Linear(points.size(), width));
    for (int64_t i = 0; i < depth - 1; ++i) {
      const bool skip = std::find(skips.begin(), skips.end(), static_cast<size_t>(i)) != skips.end();
      pts_linears->push_back(nn::Linear(width + (skip ? points.size() : 0), width));
    }
    views_linears->push_back(nn::Linear(views.size() + width, width / 2));
    register_module("pts_linears", pts_linears);
    register_module("views_linears", views_linears);
    feature_linear = register_module("feature_linear", nn::Linear(width, width));
    alpha_linear = register_module("alpha_linear", nn::Linear(width, 1));
    rgb_linear = register_module("rgb_linear", nn::Linear(width / 2, 3));
  }
  Tensor query(const Tensor& pts, const Tensor& dirs) {
    const auto input = points(pts), input_views = views(dirs);
    auto h = input;
    for (size_t i = 0; i < pts_linears->size(); ++i) {
      h = torch::relu(pts_linears[i]->as<nn::Linear>()->forward(h));
      if (std::count(skips.begin(), skips.end(), i) > 0) h = torch::cat({input, h}, -1);
    }
    const auto alpha = alpha_linear(h);
    h = torch::cat({feature_linear(h), input_views}, -1);
    for (const auto& layer : *views_linears) h = torch::relu(layer->as<nn::LinearImpl>()->forward(h));
    return torch::cat({rgb_linear(h), alpha}, -1);
  }
  std::map<std::string, Tensor> forward(const Tensor& rays) {
    const auto rays_o = rays.index({Ellipsis, Slice(0, 3)}), rays_d = rays.index({Ellipsis, Slice(3, 6)});
    const auto viewdirs = rays_d / torch::norm(rays_d, 2, -1, /*keepdim=*/true);
    const auto t_vals = torch::linspace(0., 1., samples, rays.options());
    auto z_vals = (near_plane * (1. - t_vals) + far_plane * t_vals).expand({rays.size(0), samples});
    if (is_training()) {
      const auto mids =
          .5 * (z_vals.index({Ellipsis, Slice(1, None)}) + z_vals.index({Ellipsis, Slice(None, -1)}));
      const auto upper = torch::cat({mids, z_vals.index({Ellipsis, Slice(-1, None)})}, -1);
      const auto lower = torch::cat({z_vals.index({Ellipsis, Slice(None, 1)}), mids}, -1);
      z_vals = lower + (upper - lower) * torch::rand(z_vals.sizes(), rays.options());
    }
    const auto pts = rays_o.index({Ellipsis, None, Slice()}) +
                     rays_d.index({Ellipsis, None, Slice()}) * z_vals.index({Ellipsis, Slice(), None});
    const auto raw = query(pts, viewdirs.index({Slice(), None}).expand(pts.sizes()));
    auto dists = z_vals.index({Ellipsis, Slice(1, None)}) - z_vals.index({Ellipsis, Slice(None, -1)});
    dists =
        torch::cat({dists, torch::tensor({1e10f}).expand_as(dists.index({Ellipsis, Slice(None, 1)}))}, -1);
    dists = dists * torch::norm(rays_d.index({Ellipsis, None, Slice()}), 2, -1);
    const auto rgb = torch::sigmoid(raw.index({Ellipsis, Slice(None, 3)}));
    const auto alpha = 1. - torch::exp(-torch::relu(raw.index({Ellipsis, 3})) * dists);
    const auto through = torch::cat({torch::ones({alpha.size(0), 1}), 1. - alpha + 1e-10}, -1);
    const auto weights = alpha * torch::cumprod(through, -1).index({Slice(), Slice(None, -1)});
    return {{"rgb", torch::sum(weights.unsqueeze(-1) * rgb, -2)},
            {"depth", torch::sum(weights * z_vals, -1)},
            {"acc", torch::sum(weights, -1)}};
  }
};
TORCH_MODULE(Nerf);

}  // namespace
}  // namespace ulp::test::nerf_net

ulp::test::Network ulp::test::nerf() {
  return {"nerf", [] { return instance(nerf_net::Nerf(32, 4, 8).ptr()); }, normal({{6}})};
}
