// Random networks of everything that channels go through.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace ulp::test {

/// Images in, five numbers out. Each step reads the last value and perhaps an earlier one.
class RandomChannels : public torch::nn::Module {
 public:
  explicit RandomChannels(uint64_t seed) : random_(seed) {
    torch::manual_seed(seed);
    const torch::NoGradGuard no_grad;
    values_.push_back(torch::randn({2, 3, 8, 8}));
    conv(even(), 3, 1);
    for (int i = 0; i < 9; ++i) step();
    head();
    values_.clear();
  }

  torch::Tensor forward(const torch::Tensor& x) {
    std::vector<torch::Tensor> values{x};
    for (const auto& apply : steps_) values.push_back(apply(values));
    return values.back();
  }
  const std::string& words() const { return words_; }

 private:
  using Values = std::vector<torch::Tensor>;
  using Apply = std::function<torch::Tensor(const Values&)>;

  int64_t below(int64_t limit) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit)); }
  int64_t even() { return 4 * (1 + below(3)); }
  int64_t channels() const { return values_.back().size(1); }
  int64_t size() const { return values_.back().size(2); }

  template <typename Holder>
  Holder add(Holder layer) {
    return register_module("layer" + std::to_string(layers_++), layer);
  }
  void push(const std::string& what, Apply apply) {
    values_.push_back(apply(values_));
    steps_.push_back(std::move(apply));
    std::ostringstream line;
    line << "  %" << values_.size() - 1 << " " << values_.back().sizes() << " " << what << "\n";
    words_ += line.str();
  }
  /// A step on the last value.
  void on_last(const std::string& what, std::function<torch::Tensor(torch::Tensor)> apply) {
    push(what, [apply = std::move(apply), at = values_.size() - 1](const Values& values) {
      return apply(values[at]);
    });
  }

  void conv(int64_t out, int64_t kernel, int64_t groups) {
    auto layer = add(torch::nn::Conv2d(torch::nn::Conv2dOptions(channels(), out, kernel)
                                           .padding(kernel / 2)
                                           .groups(groups)
                                           .bias(below(2) == 0)));
    on_last("conv of " + std::to_string(groups) + " groups",
            [layer](torch::Tensor x) mutable { return layer(x); });
    if (below(2)) {
      auto norm = add(torch::nn::BatchNorm2d(out));
      norm->weight.uniform_(0.5, 1.5);
      norm->bias.normal_();
      norm->running_mean.normal_();
      on_last("batch norm", [norm](torch::Tensor x) mutable { return norm(x); });
    }
    const int64_t kind = below(4);
    if (kind < 3) {
      on_last("activation", [kind](torch::Tensor x) {
        return kind == 0 ? torch::relu(x) : kind == 1 ? torch::hardswish(x) : torch::sigmoid(x);
      });
    }
  }

  /// An earlier value of this size of image, and of these channels if any are asked for; -1 for none.
  int64_t earlier(int64_t wanted) {
    for (int tries = 0; tries < 10; ++tries) {
      const int64_t at = 1 + below(static_cast<int64_t>(values_.size()) - 1);
      const torch::Tensor& value = values_[static_cast<size_t>(at)];
      if (value.size(2) == size() && (wanted == 0 || value.size(1) == wanted)) return at;
    }
    return -1;
  }
  void with_earlier(const std::string& what, int64_t at,
                    std::function<torch::Tensor(torch::Tensor, torch::Tensor)> apply) {
    push(what + " with %" + std::to_string(at),
         [apply = std::move(apply), last = values_.size() - 1, at](const Values& values) {
           return apply(values[last], values[static_cast<size_t>(at)]);
         });
  }

  void gate() {
    const int64_t c = channels();
    auto down = add(torch::nn::Linear(c, 6)), up = add(torch::nn::Linear(6, c));
    on_last("squeeze and excitation", [down, up](torch::Tensor x) mutable {
      const auto s = torch::sigmoid(up(torch::relu(down(x.mean({2, 3})))));
      return x * s.view({s.size(0), s.size(1), 1, 1});
    });
  }
  void shuffle() {
    const int64_t c = channels(), g = 2 + 2 * below(2);
    on_last("shuffle of " + std::to_string(g), [c, g](torch::Tensor x) {
      const auto groups = x.reshape({x.size(0), g, c / g, x.size(2), x.size(3)});
      return groups.transpose(1, 2).contiguous().view({x.size(0), c, x.size(2), x.size(3)});
    });
  }
  void attention() {
    const int64_t c = channels(), heads = 2 + 2 * below(2);
    auto qkv = add(torch::nn::Linear(c, 3 * c)), out = add(torch::nn::Linear(c, c));
    on_last(
        "attention of " + std::to_string(heads) + " heads", [qkv, out, c, heads](torch::Tensor x) mutable {
          const auto tokens = x.flatten(2).transpose(1, 2);
          const auto parts =
              qkv(tokens).reshape({x.size(0), -1, 3, heads, c / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
          const auto mixed = torch::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
          return out(mixed.transpose(1, 2).flatten(2)).transpose(1, 2).reshape(x.sizes());
        });
  }
  void halves(bool swap) {
    on_last(swap ? "halves swapped" : "gated linear unit", [swap](torch::Tensor x) {
      const auto half = x.chunk(2, 1);
      return swap ? torch::cat({torch::tanh(half[1]), half[0]}, 1) : half[0] * torch::sigmoid(half[1]);
    });
  }
  void norm() {
    if (below(2)) {
      auto layer = add(torch::nn::GroupNorm(4, channels()));
      on_last("group norm", [layer](torch::Tensor x) mutable { return layer(x); });
    } else {
      auto layer = add(torch::nn::InstanceNorm2d(torch::nn::InstanceNorm2dOptions(channels()).affine(true)));
      on_last("instance norm", [layer](torch::Tensor x) mutable { return layer(x); });
    }
  }
  void up_and_down() {
    auto layer = add(torch::nn::ConvTranspose2d(
        torch::nn::ConvTranspose2dOptions(channels(), even(), 2).stride(2).groups(below(2) ? 1 : 2)));
    on_last("transposed conv and pooling",
            [layer](torch::Tensor x) mutable { return torch::max_pool2d(layer(x), 2); });
  }
  void pixels() {
    auto layer = add(torch::nn::Conv2d(torch::nn::Conv2dOptions(channels(), 4 * even(), 1)));
    on_last("conv, pixel shuffle and pooling", [layer](torch::Tensor x) mutable {
      return torch::avg_pool2d(torch::pixel_shuffle(layer(x), 2), 2);
    });
  }

  void step() {
    if (channels() % 4 != 0) return conv(even(), 1, 1);  // two or four groups or heads are next
    switch (below(13)) {
      case 0:
        return conv(channels(), 3, channels());  // depthwise
      case 1:
        return conv(even(), 3, 2 + 2 * below(2));
      case 2:
      case 3:
        if (const int64_t at = earlier(channels()); at > 0)
          return with_earlier("sum", at, [](torch::Tensor a, torch::Tensor b) { return a + b; });
        return conv(even(), 1, 1);
      case 4:
      case 5:
        if (const int64_t at = earlier(0); at > 0 && channels() < 30)
          return with_earlier("cat", at, [](torch::Tensor a, torch::Tensor b) {
            return torch::cat({a, b}, 1);
          });
        return conv(even(), 1, 1);
      case 6:
        return gate();
      case 7:
        return shuffle();
      case 8:
        return attention();
      case 9:
        return halves(channels() < 8 || below(2) == 0);
      case 10:
        return norm();
      case 11:
        return up_and_down();
      default:
        return below(3) ? conv(even(), 3, 1) : pixels();
    }
  }

  void head() {
    if (below(2)) {
      on_last("pooling", [](torch::Tensor x) { return torch::adaptive_avg_pool2d(x, {2, 2}); });
    } else {
      on_last("pooling", [](torch::Tensor x) { return torch::max_pool2d(x, 4); });
    }
    auto hidden = add(torch::nn::Linear(channels() * 4, 10)), last = add(torch::nn::Linear(10, 5));
    on_last("two linear layers", [hidden, last](torch::Tensor x) mutable {
      return last(torch::gelu(hidden(x.reshape({x.size(0), -1}))));
    });
  }

  std::mt19937_64 random_;
  Values values_;
  std::vector<Apply> steps_;
  std::string words_;
  int layers_ = 0;
};

}  // namespace ulp::test
