// Random networks of the ops that a compiled step knows, beside LibTorch in float64.
#include <random>

#include "compiled_support.h"

namespace ulp::train {
namespace {

using test::Tensors;

/// Draws a network: a list of layers over a few tensors [batch, width] that are alive.
class RandomNetwork {
 public:
  explicit RandomNetwork(uint64_t seed) : random_(seed) {
    torch::manual_seed(static_cast<int64_t>(seed));
    batch_ = draw(1, 20);
    const int64_t width = draw(1, 24);
    inputs_.push_back(torch::randn({batch_, width}));
    steps_.push_back([](const Tensors&, const Tensors& x, Tensors& alive) { alive.push_back(x[0]); });
    widths_.push_back(width);
    const int64_t layers = draw(3, 9);
    for (int64_t i = 0; i < layers; ++i) add_layer();
    add_head();
  }

  at::Tensor operator()(const Tensors& parameters, const Tensors& inputs) const {
    Tensors alive;
    for (const auto& step : steps_) step(parameters, inputs, alive);
    return alive.back();
  }
  const Tensors& parameters() const { return parameters_; }
  const Tensors& inputs() const { return inputs_; }
  int64_t batch() const { return batch_; }
  int64_t outputs() const { return widths_.back(); }

 private:
  using Step = std::function<void(const Tensors& parameters, const Tensors& inputs, Tensors& alive)>;

  int64_t draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  size_t pick() { return static_cast<size_t>(draw(0, static_cast<int64_t>(widths_.size()) - 1)); }
  size_t parameter(at::IntArrayRef sizes, double scale) {
    parameters_.push_back(torch::randn(sizes) * scale);
    return parameters_.size() - 1;
  }
  void add(int64_t width, Step step) {
    steps_.push_back(std::move(step));
    widths_.push_back(width);
  }

  void add_linear(size_t from, int64_t width) {
    const int64_t inner = widths_[from];
    const size_t weight = parameter({width, inner}, 1 / std::sqrt(static_cast<double>(inner)));
    const bool has_bias = draw(0, 2) > 0;
    const size_t bias = has_bias ? parameter({width}, 0.5) : 0;
    add(width, [=](const Tensors& p, const Tensors&, Tensors& alive) {
      alive.push_back(has_bias ? torch::linear(alive[from], p[weight], p[bias])
                               : torch::linear(alive[from], p[weight]));
    });
  }

  void add_function(size_t from) {
    static const std::vector<std::function<at::Tensor(const at::Tensor&)>> functions = {
        [](const at::Tensor& x) { return torch::relu(x); },
        [](const at::Tensor& x) { return torch::leaky_relu(x, 0.1); },
        [](const at::Tensor& x) { return torch::tanh(x); },
        [](const at::Tensor& x) { return torch::sigmoid(x); },
        [](const at::Tensor& x) { return torch::gelu(x); },
        [](const at::Tensor& x) { return torch::gelu(x, "tanh"); },
        [](const at::Tensor& x) { return torch::silu(x); },
        [](const at::Tensor& x) { return torch::elu(x); },
        [](const at::Tensor& x) { return torch::softplus(x); },
        [](const at::Tensor& x) { return torch::clamp(x, -1.5, 1.5); },
        [](const at::Tensor& x) { return torch::softmax(x, -1); },
        [](const at::Tensor& x) { return torch::log_softmax(x, -1); },
        [](const at::Tensor& x) { return x * 0.5 + 1.0; },
        [](const at::Tensor& x) { return torch::dropout(x, 0.0, true); },
    };
    const auto& chosen = functions[static_cast<size_t>(draw(0, static_cast<int64_t>(functions.size()) - 1))];
    add(widths_[from], [from, chosen](const Tensors&, const Tensors&, Tensors& alive) {
      alive.push_back(chosen(alive[from]));
    });
  }

  void add_norm(size_t from) {
    const int64_t width = widths_[from];
    if (width < 3) return add_linear(from, width);  // two numbers become +-1, whatever they are
    const size_t weight = parameter({width}, 1), bias = parameter({width}, 1);
    const bool plain = draw(0, 3) == 0;
    add(width, [=](const Tensors& p, const Tensors&, Tensors& alive) {
      // Far from rows of equal numbers, which have no digits left.
      alive.push_back(plain ? torch::layer_norm(alive[from], {width}, p[weight], {}, 0.1)
                            : torch::layer_norm(alive[from], {width}, p[weight], p[bias], 0.1));
    });
  }

  void add_pair(size_t a) {
    std::vector<size_t> alike;
    for (size_t i = 0; i < widths_.size(); ++i) {
      if (widths_[i] == widths_[a]) alike.push_back(i);
    }
    const size_t b = alike[static_cast<size_t>(draw(0, static_cast<int64_t>(alike.size()) - 1))];
    const int64_t kind = draw(0, 3);
    add(widths_[a], [=](const Tensors&, const Tensors&, Tensors& alive) {
      alive.push_back(kind == 0   ? alive[a] + alive[b]
                      : kind == 1 ? alive[a] - alive[b] * 0.5
                      : kind == 2 ? torch::tanh(alive[a]) * alive[b]
                                  : torch::add(alive[a], alive[b], 0.3));
    });
  }

  void add_join(size_t a, size_t b) {
    if (draw(0, 1) == 0 && widths_[a] > 1) {
      const int64_t from = draw(0, widths_[a] - 1), width = draw(1, widths_[a] - from);
      add(width, [=](const Tensors&, const Tensors&, Tensors& alive) {
        alive.push_back(alive[a].slice(1, from, from + width));
      });
      return;
    }
    add(widths_[a] + widths_[b], [=](const Tensors&, const Tensors&, Tensors& alive) {
      alive.push_back(torch::cat({alive[a], alive[b]}, 1));
    });
  }

  void add_layer() {
    const size_t last = widths_.size() - 1;
    const size_t from = draw(0, 2) == 0 ? pick() : last;
    switch (draw(0, 7)) {
      case 0:
      case 1:
      case 2:
        return add_linear(from, draw(1, 40));
      case 3:
      case 4:
        return add_function(from);
      case 5:
        return add_norm(from);
      case 6:
        return add_pair(from);
      default:
        return add_join(from, pick());
    }
  }

  void add_head() { add_linear(widths_.size() - 1, draw(1, 6)); }

  std::mt19937_64 random_;
  int64_t batch_ = 1;
  Tensors parameters_, inputs_;
  std::vector<int64_t> widths_;  ///< of the tensors that are alive, in order
  std::vector<Step> steps_;
};

TEST(CompiledRandomNetworks, HaveLibTorchsGradients) {
  constexpr uint64_t kNetworks = 200;
  for (uint64_t seed = 1; seed <= kNetworks; ++seed) {
    const RandomNetwork network(seed);
    const test::Function function = [&](const Tensors& p, const Tensors& x) { return network(p, x); };
    const bool by_class = seed % 3 == 0;
    const at::Tensor targets = by_class ? torch::randint(network.outputs(), {network.batch()}, at::kLong)
                                        : torch::randn({network.batch(), network.outputs()});
    test::expect_gradients("network " + std::to_string(seed), function, network.parameters(),
                           network.inputs(),
                           by_class        ? LossFunction::cross_entropy()
                           : seed % 3 == 1 ? LossFunction::mse()
                                           : LossFunction::smooth_l1(),
                           targets);
  }
}

}  // namespace
}  // namespace ulp::train
