// Values whose dimension 0 is several times the batch: windows of images, heads beside the batch.
#include <gtest/gtest.h>

#include <algorithm>

#include "error_of.h"
#include "support.h"
#include "ulp/lower/lower.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;
using at::Tensor;

constexpr double kLeast = 1e-5;  ///< exponents enlarge what was rounded before

/// The engine's numbers are the graph's within rounding, at several batch sizes.
void expect_engine(const std::shared_ptr<Net>& net, const std::vector<int64_t>& item) {
  std::vector<int64_t> example = item;
  example.insert(example.begin(), 3);
  const auto module = captured(net, torch::randn(example));
  runtime::Plan plan;
  ASSERT_NO_THROW(plan = lower(*module)) << error_of([&] { lower(*module); });
  each_run(plan, item, 1, [&](const Tensor& x, const Tensor& got) {
    const torch::NoGradGuard no_grad;
    const Tensor expected = module->forward({x});
    ASSERT_EQ(got.sizes(), expected.sizes());
    EXPECT_LE(relative_error(got, expected), std::max(kLeast, rounding_bound(plan, kF32, kF32)))
        << listing(plan);
  });
}

constexpr int64_t kSide = 6, kWindow = 3, kChannels = 4;

/// [N, 6, 6, C] -> [4 N, 9, C].
Tensor partition(const Tensor& x) {
  return x.reshape({x.size(0), kSide / kWindow, kWindow, kSide / kWindow, kWindow, kChannels})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({-1, kWindow * kWindow, kChannels});
}

/// And back.
Tensor reverse(const Tensor& windows) {
  return windows.reshape({-1, kSide / kWindow, kSide / kWindow, kWindow, kWindow, kChannels})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({-1, kSide, kSide, kChannels});
}

TEST(Windows, CosinesOfWhatTheyHold) {
  torch::manual_seed(2);
  auto net = std::make_shared<Net>();
  nn::Linear table = net->add("table", nn::Linear(2, 9));
  const Tensor places = net->register_buffer("places", torch::randn({9, 2}));
  net->body = [=](const Tensor& x) mutable {
    const Tensor windows = partition(x);
    const Tensor unit = windows / windows.norm(2, {-1}, true).clamp_min(1e-6);
    const Tensor bias = torch::relu(table(places)).unsqueeze(0);  // the same in every run
    const Tensor scores = torch::cat({unit.matmul(unit.transpose(1, 2)) + bias, windows}, 2);
    return reverse(scores.softmax(-1).narrow(2, 0, 9).matmul(windows));
  };
  expect_engine(net, {kSide, kSide, kChannels});
}

TEST(Windows, LayersWorkInside) {
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  nn::LayerNorm norm = net->add("norm", nn::LayerNorm(nn::LayerNormOptions({kChannels})));
  nn::Linear wide = net->add("wide", nn::Linear(kChannels, 7)),
             narrow = net->add("narrow", nn::Linear(7, kChannels));
  net->body = [=](const Tensor& x) mutable {
    const Tensor windows = partition(x);
    const Tensor inside = narrow(torch::gelu(wide(norm(windows))));
    const Tensor weights = (inside * windows).softmax(1);  // over the places of a window
    return reverse(inside + weights - windows.mean(1, true)) + x;
  };
  expect_engine(net, {kSide, kSide, kChannels});
}

TEST(Windows, WindowsMayBeResults) {
  torch::manual_seed(2);
  auto net = std::make_shared<Net>();
  nn::Linear head = net->add("head", nn::Linear(kChannels, 5));
  net->body = [=](const Tensor& x) mutable { return head(partition(x)).amax(1).reshape({-1, 4, 5}); };
  expect_engine(net, {kSide, kSide, kChannels});
}

/// Numbers of the regions that a shifted window may mix, for each window: [4, 9, 9], 0 or -100.
Tensor shifted_mask(int64_t shift) {
  Tensor regions = torch::zeros({1, kSide, kSide, kChannels});
  const std::vector<int64_t> cuts = {0, kSide - kWindow, kSide - shift, kSide};
  for (size_t h = 0; h < 3; ++h) {
    for (size_t w = 0; w < 3; ++w) {
      regions.slice(1, cuts[h], cuts[h + 1])
          .slice(2, cuts[w], cuts[w + 1])
          .fill_(static_cast<double>(3 * h + w));
    }
  }
  const Tensor ids = partition(regions).select(2, 0);
  const Tensor apart = ids.unsqueeze(1) - ids.unsqueeze(2);
  return torch::zeros(apart.sizes()).masked_fill(apart != 0, -100.0);
}

/// Attention of two heads in windows; `joined` scores are [4 N, heads, 9, 9].
Tensor window_attention(nn::Linear& qkv, const Tensor& x, const std::function<Tensor(Tensor)>& mask) {
  const Tensor windows = partition(x);
  const auto parts =
      qkv(windows).reshape({-1, kWindow * kWindow, 3, 2, kChannels / 2}).permute({2, 0, 3, 1, 4}).unbind(0);
  const Tensor scores = torch::matmul(parts[0] * 0.7, parts[1].transpose(-2, -1));
  const Tensor mixed = torch::matmul(mask(scores).softmax(-1), parts[2]);
  return reverse(mixed.transpose(1, 2).reshape({-1, kWindow * kWindow, kChannels}));
}

TEST(Windows, ShiftedAttentionHasAMaskForEachWindow) {
  torch::manual_seed(3);
  auto net = std::make_shared<Net>();
  nn::Linear qkv = net->add("qkv", nn::Linear(kChannels, 3 * kChannels));
  const Tensor mask = shifted_mask(1), bias = torch::randn({2, 9, 9});
  net->body = [=](const Tensor& x) mutable {
    const Tensor rolled = torch::roll(x, {-1, -1}, {1, 2});
    const Tensor mixed = window_attention(qkv, rolled, [&](const Tensor& scores) {
      const Tensor by_window = (scores + bias).reshape({-1, 4, 2, 9, 9}) + mask.unsqueeze(1).unsqueeze(0);
      return by_window.reshape({-1, 2, 9, 9});
    });
    return torch::roll(mixed, {1, 1}, {1, 2}) * x;
  };
  expect_engine(net, {kSide, kSide, kChannels});
}

TEST(Windows, AttentionOfLibTorchsOwn) {
  torch::manual_seed(4);
  auto net = std::make_shared<Net>();
  nn::Linear qkv = net->add("qkv", nn::Linear(kChannels, 3 * kChannels));
  const Tensor bias = torch::randn({1, 2, 9, 9});
  for (const bool masked : {false, true}) {
    SCOPED_TRACE(masked);
    net->body = [=](const Tensor& x) mutable {
      const auto parts = qkv(partition(x)).reshape({-1, 9, 3, 2, 2}).permute({2, 0, 3, 1, 4}).unbind(0);
      const auto mask = masked ? std::optional<Tensor>(bias) : std::nullopt;
      const Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], mask);
      return reverse(mixed.transpose(1, 2).reshape({-1, 9, kChannels}));
    };
    expect_engine(net, {kSide, kSide, kChannels});
  }
}

/// Blocks and heads beside the batch, one of them in the way, as MaxViT's products have them.
TEST(Windows, ProductsOfBlocksAndHeads) {
  torch::manual_seed(7);
  auto net = std::make_shared<Net>();
  nn::Linear qkv = net->add("qkv", nn::Linear(kChannels, 3 * kChannels));
  net->body = [=](const Tensor& x) mutable {
    std::vector<Tensor> parts = qkv(x.reshape({-1, 4, 9, kChannels})).chunk(3, -1);
    for (Tensor& part : parts) part = part.reshape({-1, 4, 9, 2, 2}).permute({0, 1, 3, 2, 4});
    const Tensor scores = torch::einsum("bghid,bghjd->bghij", {parts[0], parts[1]});
    const Tensor mixed = torch::einsum("bghij,bghjd->bghid", {scores.softmax(-1), parts[2]});
    return mixed.permute({0, 1, 3, 2, 4}).reshape({-1, 4, 9, kChannels});
  };
  expect_engine(net, {kSide, kSide, kChannels});
}

/// Heads beside the batch, as fairseq writes attention, for [N, S, E] and for [S, N, E].
TEST(Windows, HeadsBesideTheBatch) {
  torch::manual_seed(5);
  for (const bool time_first : {false, true}) {
    SCOPED_TRACE(time_first);
    auto net = std::make_shared<Net>();
    nn::Linear q = net->add("q", nn::Linear(6, 6)), k = net->add("k", nn::Linear(6, 6)),
               v = net->add("v", nn::Linear(6, 6)), out = net->add("out", nn::Linear(6, 6));
    const Tensor later = torch::full({5, 5}, -1e9).triu(1);
    net->body = [=](const Tensor& given) mutable {
      const Tensor x = time_first ? given.transpose(0, 1) : given;
      const auto split = [&](const Tensor& rows) {
        if (time_first) return rows.contiguous().view({5, -1, 2}).transpose(0, 1);
        return rows.view({-1, 5, 3, 2}).transpose(1, 2).reshape({-1, 5, 2});
      };
      Tensor weights = torch::bmm(split(q(x) * 0.7), split(k(x)).transpose(1, 2));
      weights = (weights + later.unsqueeze(0)).view({-1, 3, 5, 5});
      weights =
          weights.masked_fill(given.select(2, 0).gt(1).unsqueeze(1).unsqueeze(2), -1e9).view({-1, 5, 5});
      const Tensor mixed = torch::bmm(weights.softmax(-1), split(v(x)));
      if (time_first) return out(mixed.transpose(0, 1).contiguous().view({5, -1, 6})).transpose(0, 1);
      return out(mixed.view({-1, 3, 5, 2}).transpose(1, 2).reshape({-1, 5, 6}));
    };
    expect_engine(net, {5, 6});
  }
}

/// Pixels of patches as a batch of their own, as MobileViT folds them.
TEST(Windows, PixelsJoinTheBatchAndLeaveIt) {
  torch::manual_seed(6);
  auto net = std::make_shared<Net>();
  nn::Conv2d conv = net->add("conv", nn::Conv2d(nn::Conv2dOptions(2, kChannels, 3).padding(1)));
  nn::Linear mix = net->add("mix", nn::Linear(kChannels, kChannels));
  net->body = [=](const Tensor& x) mutable {
    const Tensor patches = conv(x).reshape({-1, 2, 2, 2}).transpose(1, 2).reshape({-1, kChannels, 4, 4});
    const Tensor mixed = mix(patches.transpose(1, 3).reshape({-1, 4, kChannels})).relu();
    const Tensor folded = mixed.reshape({-1, 4, 4, kChannels}).transpose(1, 3).reshape({-1, 2, 2, 2});
    return folded.transpose(1, 2).reshape({-1, kChannels, 4, 4}).mean(1);
  };
  expect_engine(net, {2, 4, 4});
}

}  // namespace
}  // namespace ulp::test
