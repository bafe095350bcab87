#include "ulp/models/inception_v3.h"

#include "ulp/base/error.h"
#include "ulp/models/layers.h"

namespace ulp::models {

namespace {

using Size = BasicConv2dImpl::Size;

/// A convolution of a block: with stride 1 it keeps the size, with stride 2 it has no padding.
struct ConvLayer {
  const char* name;
  int64_t out;
  Size kernel = 1;
  int64_t stride = 1;
};

/// One way through a block: a pooling, a chain of convolutions, and convolutions that each read the chain's
/// end.
struct Branch {
  enum class Pool : uint8_t { none, average, maximum };
  Pool pool = Pool::none;
  std::vector<ConvLayer> chain = {};
  std::vector<ConvLayer> fork = {};
};
using Branches = std::vector<Branch>;

const Size kRow({1, 7}), kColumn({7, 1});

Branches block_a(int64_t pool_features) {
  return {{.chain = {{"branch1x1", 64}}},
          {.chain = {{"branch5x5_1", 48}, {"branch5x5_2", 64, 5}}},
          {.chain = {{"branch3x3dbl_1", 64}, {"branch3x3dbl_2", 96, 3}, {"branch3x3dbl_3", 96, 3}}},
          {.pool = Branch::Pool::average, .chain = {{"branch_pool", pool_features}}}};
}

Branches block_b() {
  return {{.chain = {{"branch3x3", 384, 3, 2}}},
          {.chain = {{"branch3x3dbl_1", 64}, {"branch3x3dbl_2", 96, 3}, {"branch3x3dbl_3", 96, 3, 2}}},
          {.pool = Branch::Pool::maximum}};
}

Branches block_c(int64_t inner) {
  return {{.chain = {{"branch1x1", 192}}},
          {.chain = {{"branch7x7_1", inner}, {"branch7x7_2", inner, kRow}, {"branch7x7_3", 192, kColumn}}},
          {.chain = {{"branch7x7dbl_1", inner},
                     {"branch7x7dbl_2", inner, kColumn},
                     {"branch7x7dbl_3", inner, kRow},
                     {"branch7x7dbl_4", inner, kColumn},
                     {"branch7x7dbl_5", 192, kRow}}},
          {.pool = Branch::Pool::average, .chain = {{"branch_pool", 192}}}};
}

Branches block_d() {
  return {{.chain = {{"branch3x3_1", 192}, {"branch3x3_2", 320, 3, 2}}},
          {.chain = {{"branch7x7x3_1", 192},
                     {"branch7x7x3_2", 192, kRow},
                     {"branch7x7x3_3", 192, kColumn},
                     {"branch7x7x3_4", 192, 3, 2}}},
          {.pool = Branch::Pool::maximum}};
}

Branches block_e() {
  const Size row({1, 3}), column({3, 1});
  return {
      {.chain = {{"branch1x1", 320}}},
      {.chain = {{"branch3x3_1", 384}}, .fork = {{"branch3x3_2a", 384, row}, {"branch3x3_2b", 384, column}}},
      {.chain = {{"branch3x3dbl_1", 448}, {"branch3x3dbl_2", 384, 3}},
       .fork = {{"branch3x3dbl_3a", 384, row}, {"branch3x3dbl_3b", 384, column}}},
      {.pool = Branch::Pool::average, .chain = {{"branch_pool", 192}}}};
}

class MixedImpl : public torch::nn::Module {
 public:
  MixedImpl(int64_t in, const Branches& branches) {
    for (const Branch& branch : branches) {
      Path path{branch.pool, {}, {}};
      int64_t channels = in;
      for (const ConvLayer& layer : branch.chain) {
        path.chain.push_back(add(channels, layer));
        channels = layer.out;
      }
      for (const ConvLayer& layer : branch.fork) {
        path.fork.push_back(add(channels, layer));
        out_ += layer.out;
      }
      if (branch.fork.empty()) out_ += channels;
      paths_.push_back(std::move(path));
    }
  }

  int64_t out_channels() const { return out_; }

  at::Tensor forward(const at::Tensor& x) {
    std::vector<at::Tensor> results;
    for (Path& path : paths_) {
      at::Tensor y = x;
      if (path.pool == Branch::Pool::average) y = torch::avg_pool2d(y, 3, /*stride=*/1, /*padding=*/1);
      if (path.pool == Branch::Pool::maximum) y = torch::max_pool2d(y, 3, /*stride=*/2);
      for (BasicConv2d& layer : path.chain) y = layer(y);
      for (BasicConv2d& layer : path.fork) results.push_back(layer(y));
      if (path.fork.empty()) results.push_back(y);
    }
    return torch::cat(results, 1);
  }

 private:
  struct Path {
    Branch::Pool pool;
    std::vector<BasicConv2d> chain, fork;
  };

  BasicConv2d add(int64_t in, const ConvLayer& layer) {
    return register_module(layer.name, layer.stride == 1
                                           ? BasicConv2d(in, layer.out, layer.kernel)
                                           : BasicConv2d(in, layer.out, layer.kernel, layer.stride, 0));
  }

  std::vector<Path> paths_;
  int64_t out_ = 0;
};
TORCH_MODULE(Mixed);

class InceptionAuxImpl : public torch::nn::Module {
 public:
  InceptionAuxImpl(int64_t in, int64_t num_classes) {
    conv0 = register_module("conv0", BasicConv2d(in, 128, 1));
    conv1 = register_module("conv1", BasicConv2d(128, 768, 5, 1, 0));
    fc = register_module("fc", torch::nn::Linear(768, num_classes));
  }

  void init() {
    torch::NoGradGuard no_grad;
    fc->weight.normal_(0.0, 0.001);
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = conv1(conv0(torch::avg_pool2d(x, 5, /*stride=*/3)));
    return fc(torch::flatten(torch::adaptive_avg_pool2d(y, {1, 1}), 1));
  }

 private:
  BasicConv2d conv0{nullptr}, conv1{nullptr};
  torch::nn::Linear fc{nullptr};
};
TORCH_MODULE(InceptionAux);

class InceptionV3 final : public AuxImageModel {
 public:
  explicit InceptionV3(const InceptionV3Options& options) : options_(options) {
    const bool small = options.small_input;
    const int64_t padding = small ? 1 : 0;
    const auto stem = [&](const char* name, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                          int64_t pad) {
      return register_module(name, BasicConv2d(in, out, kernel, stride, pad));
    };
    first_ = {stem("Conv2d_1a_3x3", options.in_channels, 32, 3, small ? 1 : 2, padding),
              stem("Conv2d_2a_3x3", 32, 32, 3, 1, padding), stem("Conv2d_2b_3x3", 32, 64, 3, 1, 1)};
    second_ = {stem("Conv2d_3b_1x1", 64, 80, 1, 1, 0), stem("Conv2d_4a_3x3", 80, 192, 3, 1, padding)};
    int64_t channels = 192;
    const auto block = [&](const char* name, const Branches& branches) {
      blocks_.push_back(register_module(name, Mixed(channels, branches)));
      channels = blocks_.back()->out_channels();
    };
    block("Mixed_5b", block_a(32));
    block("Mixed_5c", block_a(64));
    block("Mixed_5d", block_a(64));
    block("Mixed_6a", block_b());
    block("Mixed_6b", block_c(128));
    block("Mixed_6c", block_c(160));
    block("Mixed_6d", block_c(160));
    block("Mixed_6e", block_c(192));
    if (options.aux_logits) aux = register_module("AuxLogits", InceptionAux(channels, options.num_classes));
    block("Mixed_7a", block_d());
    block("Mixed_7b", block_e());
    block("Mixed_7c", block_e());
    fc = register_module("fc", torch::nn::Linear(channels, options.num_classes));
    init_normal(*this, 0.1);
    if (aux) aux->init();
  }

  at::Tensor forward(at::Tensor images) override { return run(images, nullptr); }

  AuxLogits forward_with_aux(at::Tensor images) override {
    constexpr const char* kWhere = "models.forward_with_aux";
    if (!aux) fail(kWhere, "expected 'inception_v3' made with aux_logits, got without");
    AuxLogits result;
    result.logits = run(images, &result.auxiliary);
    return result;
  }

 private:
  static constexpr size_t kAuxBlock = 7;  // Mixed_6e

  at::Tensor run(at::Tensor x, std::vector<at::Tensor>* auxiliary) {
    check_images("inception_v3", x, options_.in_channels);
    const int64_t least = options_.small_input ? 15 : kInceptionV3SmallestSide;
    if (x.size(2) < least || x.size(3) < least) {
      fail("models.forward", "expected images of at least ", least, " x ", least, " for 'inception_v3', got ",
           x.sizes());
    }
    for (BasicConv2d& layer : first_) x = layer(x);
    x = torch::max_pool2d(x, 3, /*stride=*/2);
    for (BasicConv2d& layer : second_) x = layer(x);
    if (!options_.small_input) x = torch::max_pool2d(x, 3, /*stride=*/2);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      x = blocks_[i](x);
      if (auxiliary && i == kAuxBlock) auxiliary->push_back(run_aux(x));
    }
    x = torch::flatten(torch::adaptive_avg_pool2d(x, {1, 1}), 1);
    return fc(torch::dropout(x, options_.dropout, is_training()));
  }

  at::Tensor run_aux(const at::Tensor& x) {
    constexpr int64_t kLeast = 17;
    if (x.size(2) < kLeast || x.size(3) < kLeast) {
      fail("models.forward_with_aux", "expected images of which ", kLeast, " x ", kLeast,
           " values reach AuxLogits (299 x 299 pixels), got ", x.size(2), " x ", x.size(3));
    }
    return aux(x);
  }

  InceptionV3Options options_;
  std::vector<BasicConv2d> first_, second_;
  std::vector<Mixed> blocks_;
  InceptionAux aux{nullptr};
  torch::nn::Linear fc{nullptr};
};

}  // namespace

std::shared_ptr<AuxImageModel> make_inception_v3(const InceptionV3Options& options) {
  check_option("inception_v3", "in_channels", options.in_channels);
  check_option("inception_v3", "num_classes", options.num_classes);
  return std::make_shared<InceptionV3>(options);
}

}  // namespace ulp::models
