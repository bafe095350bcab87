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

/// Draws a convolutional network: layers over images that are alive, and a head.
class RandomImages {
 public:
  explicit RandomImages(uint64_t seed) : random_(seed) {
    torch::manual_seed(static_cast<int64_t>(seed));
    batch_ = draw(2, 5);
    const Size size{draw(1, 5), draw(4, 10), draw(4, 10)};
    inputs_.push_back(torch::randn({batch_, size.channels, size.height, size.width}));
    add(size, [](const Tensors&, const Tensors& x, Tensors& alive) { alive.push_back(x[0]); });
    add_conv(0);
    const int64_t layers = draw(2, 7);
    for (int64_t i = 0; i < layers; ++i) add_layer(draw(0, 3) == 0 ? pick() : sizes_.size() - 1);
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
  static constexpr int64_t kOutputs = 3;

 private:
  using Step = std::function<void(const Tensors& parameters, const Tensors& inputs, Tensors& alive)>;
  struct Size {
    int64_t channels, height, width;
    bool operator==(const Size&) const = default;
  };

  int64_t draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  size_t pick() { return static_cast<size_t>(draw(0, static_cast<int64_t>(sizes_.size()) - 1)); }
  size_t parameter(at::IntArrayRef sizes, double scale) {
    parameters_.push_back(torch::randn(sizes) * scale);
    return parameters_.size() - 1;
  }
  void add(Size size, Step step) {
    steps_.push_back(std::move(step));
    sizes_.push_back(size);
  }

  void add_conv(size_t from) {
    const Size size = sizes_[from];
    const int64_t kernel = draw(1, 3), stride = draw(0, 3) == 0 ? 2 : 1, pad = draw(0, kernel - 1);
    const int64_t dilation = kernel > 1 && draw(0, 4) == 0 ? 2 : 1;
    const auto after = [&](int64_t n) { return (n + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1; };
    if (size.height + 2 * pad <= dilation * (kernel - 1) || size.width + 2 * pad <= dilation * (kernel - 1))
      return;
    const bool depthwise = size.channels > 1 && draw(0, 3) == 0;
    const int64_t groups = depthwise ? size.channels : size.channels % 2 == 0 && draw(0, 3) == 0 ? 2 : 1;
    const int64_t out = depthwise ? size.channels : groups * draw(1, 20 / groups);
    const size_t weight =
        parameter({out, size.channels / groups, kernel, kernel},
                  1 / std::sqrt(static_cast<double>(size.channels / groups * kernel * kernel)));
    const bool biased = draw(0, 1) == 0;
    const size_t bias = biased ? parameter({out}, 0.5) : 0;
    add({out, after(size.height), after(size.width)}, [=](const Tensors& p, const Tensors&, Tensors& alive) {
      alive.push_back(torch::conv2d(alive[from], p[weight], biased ? p[bias] : at::Tensor(), stride, pad,
                                    dilation, groups));
    });
  }

  void add_upward(size_t from) {
    const Size size = sizes_[from];
    if (size.height * size.width > 150) return add_pool(from);
    const int64_t kernel = draw(1, 3), stride = draw(1, 2), out = draw(1, 9);
    const size_t weight = parameter({size.channels, out, kernel, kernel},
                                    1 / std::sqrt(static_cast<double>(size.channels * kernel)));
    add({out, (size.height - 1) * stride + kernel, (size.width - 1) * stride + kernel},
        [=](const Tensors& p, const Tensors&, Tensors& alive) {
          alive.push_back(torch::conv_transpose2d(alive[from], p[weight], {}, stride));
        });
  }

  void add_norm(size_t from) {
    const Size size = sizes_[from];
    if (batch_ * size.height * size.width < 8)
      return;  // few numbers become nearly the same, whatever they are
    const size_t weight = parameter({size.channels}, 1), bias = parameter({size.channels}, 1);
    const bool relu = draw(0, 1) == 0;
    add(size, [=](const Tensors& p, const Tensors&, Tensors& alive) {
      const at::Tensor y = torch::batch_norm(alive[from], p[weight], p[bias], {}, {}, true, 0.1, 0.1, false);
      alive.push_back(relu ? torch::relu(y) : y);
    });
  }

  void add_pool(size_t from) {
    Size size = sizes_[from];
    const int64_t kind = draw(0, 2);
    if (size.height < 4 || size.width < 4) return;
    if (kind == 2) {
      const int64_t height = draw(1, 6), width = draw(1, 6);
      return add({size.channels, height, width}, [=](const Tensors&, const Tensors&, Tensors& alive) {
        alive.push_back(torch::adaptive_avg_pool2d(alive[from], {height, width}));
      });
    }
    const int64_t kernel = draw(2, 3), stride = draw(1, 3), pad = draw(0, 1);
    size.height = (size.height + 2 * pad - kernel) / stride + 1;
    size.width = (size.width + 2 * pad - kernel) / stride + 1;
    add(size, [=](const Tensors&, const Tensors&, Tensors& alive) {
      alive.push_back(kind == 0 ? torch::max_pool2d(alive[from], kernel, stride, pad)
                                : torch::avg_pool2d(alive[from], kernel, stride, pad));
    });
  }

  void add_pair(size_t a) {
    std::vector<size_t> alike;
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (sizes_[i] == sizes_[a]) alike.push_back(i);
    }
    const size_t b = alike[static_cast<size_t>(draw(0, static_cast<int64_t>(alike.size()) - 1))];
    const int64_t kind = draw(0, 3);
    Size size = sizes_[a];
    if (kind == 3) size.channels *= 2;
    add(size, [=](const Tensors&, const Tensors&, Tensors& alive) {
      alive.push_back(kind == 0   ? alive[a] + alive[b]
                      : kind == 1 ? torch::relu(alive[a] + alive[b])
                      : kind == 2 ? torch::tanh(alive[a]) * alive[b]
                                  : torch::cat({alive[a], alive[b]}, 1));
    });
  }

  void add_function(size_t from) {
    const int64_t kind = draw(0, 4);
    add(sizes_[from], [=](const Tensors&, const Tensors&, Tensors& alive) {
      const at::Tensor& x = alive[from];
      alive.push_back(kind == 0   ? torch::relu(x)
                      : kind == 1 ? torch::relu6(x * 3)
                      : kind == 2 ? torch::silu(x)
                      : kind == 3 ? torch::softmax(x, -1)  // row-major
                                  : torch::leaky_relu(x, 0.1));
    });
  }

  void add_layer(size_t from) {
    switch (draw(0, 8)) {
      case 0:
      case 1:
      case 2:
        return add_conv(from);
      case 3:
      case 4:
        return add_norm(from);
      case 5:
        return add_pool(from);
      case 6:
        return add_upward(from);
      case 7:
        return add_pair(from);
      default:
        return add_function(from);
    }
  }

  void add_head() {
    const size_t from = sizes_.size() - 1;
    const Size size = sizes_[from];
    const bool whole = draw(0, 1) == 0;
    const int64_t inner = whole ? size.channels * size.height * size.width : size.channels;
    const size_t weight = parameter({kOutputs, inner}, 1 / std::sqrt(static_cast<double>(inner)));
    add({kOutputs, 1, 1}, [=](const Tensors& p, const Tensors&, Tensors& alive) {
      const at::Tensor x = whole ? alive[from] : torch::adaptive_avg_pool2d(alive[from], {1, 1});
      alive.push_back(torch::linear(x.flatten(1), p[weight]));
    });
  }

  std::mt19937_64 random_;
  int64_t batch_ = 1;
  Tensors parameters_, inputs_;
  std::vector<Size> sizes_;  ///< of the images that are alive, in order
  std::vector<Step> steps_;
};

TEST(CompiledRandomNetworks, ConvolutionalOnesHaveLibTorchsGradients) {
  constexpr uint64_t kNetworks = 100;
  for (uint64_t seed = 1; seed <= kNetworks; ++seed) {
    const RandomImages network(seed);
    const test::Function function = [&](const Tensors& p, const Tensors& x) { return network(p, x); };
    const bool by_class = seed % 2 == 0;
    const at::Tensor targets = by_class ? torch::randint(RandomImages::kOutputs, {network.batch()}, at::kLong)
                                        : torch::randn({network.batch(), RandomImages::kOutputs});
    test::expect_gradients("images " + std::to_string(seed), function, network.parameters(), network.inputs(),
                           by_class ? LossFunction::cross_entropy() : LossFunction::mse(), targets, 1000,
                           0.1);
  }
}

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
