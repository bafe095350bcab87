// Causal attention as C++ programs write it: any spelling, scale, mask and layout of heads is one step, and a
// text written token by token has the module's numbers.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "error_of.h"
#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;

constexpr int64_t kLongestText = 12, kWidth = 16, kHeadCount = 4, kHeadDepth = 4, kWords = 30;
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kLowest = std::numeric_limits<float>::lowest();

/// One way to write each part.
struct Spelling {
  int heads = 0, scale = 0, mask = 0, softmax = 0, positions = 0;
};
constexpr int kHeadKinds = 6, kScaleKinds = 9, kMaskKinds = 22, kSoftmaxKinds = 6, kPositionKinds = 9;

struct SpelledGpt : nn::Module {
  Spelling how;
  nn::Embedding words = register_module("words", nn::Embedding(kWords, kWidth));
  nn::Embedding places = register_module("places", nn::Embedding(kLongestText, kWidth));
  nn::Linear q = register_module("q", nn::Linear(kWidth, kWidth));
  nn::Linear k = register_module("k", nn::Linear(kWidth, kWidth));
  nn::Linear v = register_module("v", nn::Linear(kWidth, kWidth));
  nn::Linear out = register_module("out", nn::Linear(kWidth, kWords));
  nn::Softmax normalize = register_module("normalize", nn::Softmax(-1));
  nn::Dropout drop = register_module("drop", nn::Dropout(0.1));
  at::Tensor upper, lower, numbers, ids, cosines, sines;

  explicit SpelledGpt(Spelling spelling) : how(spelling) {
    const at::Tensor ones = torch::ones({kLongestText, kLongestText});
    upper = register_buffer("upper", ones.triu(1));
    lower = register_buffer("lower", ones.tril().view({1, 1, kLongestText, kLongestText}));
    numbers = register_buffer("numbers", torch::full({kLongestText, kLongestText}, -kInf).triu(1));
    ids = register_buffer("ids", torch::arange(kLongestText).unsqueeze(0));
    const at::Tensor angles =
        torch::outer(torch::arange(kLongestText), torch::tensor({1.0F, 0.1F, 0.01F, 0.001F}));
    cosines = register_buffer("cosines", angles.cos());
    sines = register_buffer("sines", angles.sin());
  }

  at::Tensor rotated(const at::Tensor& x, int64_t t) const {  // [n, heads, t, depth]
    const auto halves = x.chunk(2, -1);
    const at::Tensor turned = torch::cat({-halves[1], halves[0]}, -1);
    return x * cosines.slice(0, 0, t) + turned * sines.slice(0, 0, t).unsqueeze(0).unsqueeze(0);
  }

  at::Tensor rotated_pairs(const at::Tensor& x, int64_t t) const {  // [n, t, heads, depth]
    const auto parts = x.view({x.size(0), t, kHeadCount, kHeadDepth / 2, 2}).unbind(-1);
    const auto table = [&](const at::Tensor& all) {
      return all.index_select(0, torch::arange(t))
          .slice(1, 0, kHeadDepth / 2)
          .view({1, t, 1, kHeadDepth / 2});
    };
    const at::Tensor c = table(cosines), s = table(sines);
    return torch::stack({parts[0] * c - parts[1] * s, parts[0] * s + parts[1] * c}, -1).flatten(3);
  }

  // clang-format off: a spelling a line
  at::Tensor masked(at::Tensor s, int64_t n, int64_t t) const {
    const at::Tensor bad = upper.to(torch::kBool).slice(0, 0, t).slice(1, 0, t);
    const at::Tensor seen = lower.slice(2, 0, t).slice(3, 0, t);
    const at::Tensor seen_rows = s.dim() == 3 ? seen[0] : seen;
    const auto like = [&](const at::Tensor& mask) {  // as many dimensions as the scores have
      return s.dim() == 3 ? mask.unsqueeze(0) : mask.unsqueeze(0).unsqueeze(0);
    };
    const at::Tensor at = torch::arange(t);
    switch (how.mask) {
      case 0:
        return s.masked_fill(bad, -kInf);
      case 1:
        return s.masked_fill_(bad, -1e9);
      case 2:
        return s.masked_fill(seen_rows == 0, -kInf);
      case 3:
        return torch::where(seen_rows == 0, torch::full_like(s, -1e9), s);
      case 4:
        return torch::where(seen_rows == 0, -1e9, s);
      case 5:
        return torch::where(seen_rows.to(torch::kBool), s, torch::tensor(static_cast<float>(-kInf)));
      case 6:
        return s + torch::triu(torch::full({t, t}, -kInf), 1);
      case 7:
        return torch::full({t, t}, -1e9).triu(1) + s;
      case 8: {
        at::Tensor mask = torch::full({t, t}, kLowest);
        mask.masked_fill_(at < (at + 1).view({t, 1}), 0);
        return s + like(mask).expand(s.dim() == 3 ? std::vector<int64_t>{s.size(0), t, t}
                                                  : std::vector<int64_t>{n, 1, t, t});
      }
      case 9:
        return s - (1.0 - like(torch::ones({t, t}).tril())) * 1e9;
      case 10:
        return s * seen_rows - 1e10 * (1 - seen_rows);
      case 11:
        return s + numbers.slice(0, 0, t).slice(1, 0, t);
      case 12:
        return s.masked_fill(at.unsqueeze(0) > at.unsqueeze(1), -kInf);
      case 13:
        return s.masked_fill((at.view({t, 1}) >= at.view({1, t})).logical_not(), -1e10);
      case 14:
        return s.masked_fill(torch::ones_like(s).triu(1).to(torch::kBool), -kInf);
      case 15:
        return s.masked_fill(torch::ones({n, 1, t, t})
                                     .tril()
                                     .view({n, 1, t, t})
                                     .slice(1, 0, 1)
                                     .expand({n, s.dim() == 3 ? 1 : kHeadCount, t, t})
                                     .reshape(s.dim() == 3 ? std::vector<int64_t>{n, t, t}
                                                           : std::vector<int64_t>{n, kHeadCount, t, t}) == 0,
                             -kInf);
      case 16:
        return s + torch::zeros({t, t}).masked_fill_(bad, -kInf).expand_as(s);
      case 17:
        return s.masked_fill(bad, -1e9).masked_fill(bad, -kInf);
      case 18:
        return s + (1 - seen_rows) * kLowest;
      case 19:
        return s.masked_fill(torch::tril(torch::ones({t, t}, torch::kBool)).bitwise_not(), kLowest);
      case 20:
        return torch::where(bad, torch::full({}, -1e9), s);
      default:
        return s.add_(torch::full({t, t}, -kInf).triu_(1));
    }
  }

  // clang-format on

  at::Tensor weights(const at::Tensor& s) {
    switch (how.softmax) {
      case 0:
        return torch::softmax(s, -1);
      case 1:
        return s.softmax(s.dim() - 1, torch::kFloat);
      case 2:
        return drop(nn::functional::softmax(s, nn::functional::SoftmaxFuncOptions(-1)));
      case 3:
        return normalize(s);
      case 4:
        return s.to(torch::kFloat).softmax(-1).type_as(s);
      default: {
        const int64_t t = s.size(-1);
        return torch::softmax(s, -1) * lower.view({kLongestText, kLongestText}).slice(0, 0, t).slice(1, 0, t);
      }
    }
  }

  /// softmax(scores) v with the scale in some place. Keys are turned already.
  at::Tensor attend(at::Tensor a, at::Tensor turned, const at::Tensor& b, int64_t n, int64_t t) {
    const double root = std::sqrt(static_cast<double>(kHeadDepth));
    if (how.scale == 0) a = a / root;
    if (how.scale == 1) turned = turned * (1 / root);
    if (how.scale == 2) {
      a = a * std::pow(kHeadDepth, -0.25);
      turned = turned * std::pow(kHeadDepth, -0.25);
    }
    at::Tensor s = how.heads == 5 ? torch::bmm(a, turned) : torch::matmul(a, turned);
    if (how.scale == 3) s = s / root;
    if (how.scale == 4) s = 0.5 * s;
    if (how.scale == 5) s /= root;
    if (how.scale == 6) s = s / torch::sqrt(torch::tensor(static_cast<float>(kHeadDepth)));
    s = masked(s, n, t);
    if (how.scale == 7) s = s / root;
    if (how.scale == 8) s = s * std::pow(kHeadDepth, -0.5);
    return how.heads == 5 ? torch::bmm(weights(s), b) : torch::matmul(weights(s), b);
  }

  at::Tensor mixed(const at::Tensor& x, int64_t n, int64_t t) {
    const auto split = [&](nn::Linear& layer) {
      const at::Tensor rows = layer(x).view({n, t, kHeadCount, kHeadDepth});
      return how.positions == 8 && layer.get() != v.get() ? rotated_pairs(rows, t) : rows;
    };
    const bool rotary = how.positions == 4;
    const auto turn = [&](const at::Tensor& y) { return rotary ? rotated(y, t) : y; };
    if (how.heads == 0 || how.heads == 1) {
      const at::Tensor a = turn(split(q).transpose(1, 2)), b = turn(split(k).transpose(1, 2));
      const at::Tensor made = attend(a, how.heads == 0 ? b.transpose(-2, -1) : b.permute({0, 1, 3, 2}),
                                     split(v).transpose(1, 2), n, t);
      return made.transpose(1, 2).contiguous().view({n, t, kWidth});
    }
    if (how.heads == 2) {  // keys turned as they are split
      const at::Tensor made = attend(split(q).permute({0, 2, 1, 3}), split(k).permute({0, 2, 3, 1}),
                                     split(v).permute({0, 2, 1, 3}), n, t);
      return made.permute({0, 2, 1, 3}).reshape({n, t, kWidth});
    }
    if (how.heads == 3) {  // a head after the other
      const at::Tensor a = q(x), b = k(x), c = v(x);
      std::vector<at::Tensor> heads;
      for (int64_t h = 0; h < kHeadCount; ++h) {
        const auto part = [&](const at::Tensor& y) { return y.narrow(2, h * kHeadDepth, kHeadDepth); };
        heads.push_back(attend(part(a), part(b).transpose(-2, -1), part(c), n, t));
      }
      return torch::cat(heads, -1);
    }
    if (how.heads == 4) {  // one head
      return attend(q(x), k(x).transpose(1, 2), v(x), n, t);
    }
    const auto rows = [&](nn::Linear& layer) {  // heads in the batch
      return split(layer).transpose(1, 2).reshape({n * kHeadCount, t, kHeadDepth});
    };
    const at::Tensor made = attend(rows(q), rows(k).transpose(1, 2), rows(v), n, t);
    return made.view({n, kHeadCount, t, kHeadDepth}).transpose(1, 2).reshape({n, t, kWidth});
  }

  at::Tensor forward(const at::Tensor& text) {
    const int64_t n = text.size(0), t = text.size(1);
    at::Tensor x = words(text);
    if (how.positions == 0) x = x + places(torch::arange(t, torch::kLong));
    if (how.positions == 1) x = x + places(torch::arange(t).unsqueeze(0).expand({n, t}));
    if (how.positions == 2) x = x + places(ids.slice(1, 0, t));
    if (how.positions == 3) x = x + places->weight.slice(0, 0, t);
    if (how.positions == 5) x = x + places(torch::arange(t).expand_as(text));
    if (how.positions == 6) x = x + places(ids.slice(1, 0, t).repeat({n, 1}));
    if (how.positions == 7) x = x + places->weight.index_select(0, torch::arange(t));
    return out(x + mixed(x, n, t));
  }
};

std::string text_of(const Spelling& how) {
  return "heads " + std::to_string(how.heads) + ", scale " + std::to_string(how.scale) + ", mask " +
         std::to_string(how.mask) + ", softmax " + std::to_string(how.softmax) + ", positions " +
         std::to_string(how.positions);
}

at::Tensor text_of_length(int64_t batch, int64_t length) {
  return torch::randint(0, kWords, {batch, length}, at::kLong);
}

/// Results of a run behind those that the engine has taken.
at::Tensor continued_run(runtime::Engine& engine, const at::Tensor& given) {
  engine.set_sizes({{"time", given.size(1)}});
  const at::Tensor text = given.contiguous();
  const at::Tensor result = torch::empty({given.size(0), given.size(1), kWords});
  const std::array<const void*, 1> in = {text.const_data_ptr()};
  const std::array<void*, 1> to = {result.mutable_data_ptr()};
  engine.run(given.size(0), in, to);
  return result;
}

std::shared_ptr<graph::GraphModule> captured_gpt(const std::shared_ptr<SpelledGpt>& model) {
  model->eval();
  const torch::NoGradGuard no_grad;
  auto graph = ulp::capture(*model, {text_of_length(3, 8)}, {.free = {{0, 1, "time", kLongestText}}});
  graph->eval();
  return graph;
}

/// The engine's numbers are the module's, whole and token by token, and attention is one step (for each head
/// that is one).
void expect_decodes(const Spelling& how) {
  SCOPED_TRACE(text_of(how));
  const torch::NoGradGuard no_grad;
  const auto model = std::make_shared<SpelledGpt>(how);
  const auto graph = captured_gpt(model);
  runtime::Plan plan;
  ASSERT_NO_THROW(plan = ulp::lower(*graph, {.continued = "time"}));
  EXPECT_EQ(std::ranges::count(plan.steps, runtime::Op::attention, &runtime::Step::op),
            how.heads == 3 ? kHeadCount : 1)
      << listing(plan);
  runtime::Engine engine(plan, {.threads = 1});
  for (const int64_t length : {int64_t{1}, int64_t{5}, kLongestText}) {
    const at::Tensor text = text_of_length(2, length);
    engine.rewind();
    EXPECT_LE(relative_error(continued_run(engine, text), model->forward(text)), 1e-5) << length;
  }
  const at::Tensor text = text_of_length(2, kLongestText);
  engine.rewind();
  for (int64_t i = 0; i < kLongestText; ++i) {
    const at::Tensor want = model->forward(text.narrow(1, 0, i + 1)).narrow(1, i, 1);
    EXPECT_LE(relative_error(continued_run(engine, text.narrow(1, i, 1)), want), 1e-5) << i;
  }
}

TEST(CausalMasks, EveryPartInEverySpellingIsOneStepAndContinues) {
  torch::manual_seed(7);
  for (int i = 0; i < kMaskKinds; ++i)
    expect_decodes({i % kHeadKinds, (i + 3) % kScaleKinds, i, i % kSoftmaxKinds, i % kPositionKinds});
}

TEST(CausalMasks, AnyPartsTogetherAreOneStepAndContinue) {
  torch::manual_seed(8);
  std::mt19937 random(8);
  const auto draw = [&](int kinds) { return static_cast<int>(random() % static_cast<unsigned>(kinds)); };
  for (int i = 0; i < 20; ++i) {
    expect_decodes(
        {draw(kHeadKinds), draw(kScaleKinds), draw(kMaskKinds), draw(kSoftmaxKinds), draw(kPositionKinds)});
  }
}

/// Like expect_decodes, of a graph with other weights than a module's: its own numbers.
void expect_decodes_as(graph::GraphModule& graph, double tolerance) {
  const torch::NoGradGuard no_grad;
  runtime::Engine engine(ulp::lower(graph, {.continued = "time"}), {.threads = 1});
  const at::Tensor text = text_of_length(2, kLongestText), want = graph.forward({text});
  EXPECT_LE(relative_error(continued_run(engine, text), want), tolerance);
  engine.rewind();
  for (int64_t i = 0; i < kLongestText; ++i) {
    EXPECT_LE(relative_error(continued_run(engine, text.narrow(1, i, 1)), want.narrow(1, i, 1)), tolerance)
        << i;
  }
}

TEST(CausalMasks, PositionsOfEverySpellingContinueWithWeightsInFewBits) {
  torch::manual_seed(9);
  for (int i = 0; i < kPositionKinds; ++i) {
    SCOPED_TRACE("positions " + std::to_string(i));
    const auto model = std::make_shared<SpelledGpt>(Spelling{.scale = 3, .mask = 5, .positions = i});
    const auto graph = captured_gpt(model);
    for (const int bits : {8, 4})
      EXPECT_NO_THROW(expect_decodes_as(*quant::quantize_weights(graph, {.bits = bits, .group = 16}), 1e-5))
          << bits;
  }
}

TEST(CausalMasks, FillsThatLeaveSomethingOfLaterKeysStayAsTheyAreWritten) {
  torch::manual_seed(10);
  struct Soft : nn::Module {
    double fill = 0, scale = 1;
    bool after = false;
    nn::Linear q = register_module("q", nn::Linear(8, 8)), k = register_module("k", nn::Linear(8, 8));
    at::Tensor forward(const at::Tensor& x) {
      const int64_t t = x.size(1);
      const auto heads = [&](nn::Linear& layer) { return layer(x).view({-1, t, 2, 4}).transpose(1, 2); };
      at::Tensor s = heads(q).matmul(heads(k).transpose(2, 3));
      s = s.masked_fill(torch::ones({t, t}, torch::kBool).triu(1), fill) * scale;
      return s.softmax(-1).matmul(heads(k));
    }
  };
  for (const auto& [fill, scale, steps] : {std::tuple{-20.0, 1.0, 0},
                                           {-1e4, 1.0, 0},
                                           {-1e9, 1e-4, 0},
                                           {-1e9, 0.5, 1},
                                           {1e9, 1.0, 0},
                                           {1e9, -1.0, 0},
                                           {-1e9, -1.0, 0}}) {
    const torch::NoGradGuard no_grad;
    const auto model = std::make_shared<Soft>();
    model->fill = fill;
    model->scale = scale;
    const at::Tensor x = torch::randn({3, 6, 8});
    const auto graph = captured(model, x);
    const runtime::Plan plan = ulp::lower(*graph);
    EXPECT_EQ(std::ranges::count(plan.steps, runtime::Op::attention, &runtime::Step::op), steps)
        << fill << " " << scale;
    runtime::Engine engine(plan, {.threads = 1});
    EXPECT_LE(relative_error(run_engine(engine, x), model->forward(x)), 1e-5) << fill << " " << scale;
  }
}

}  // namespace
}  // namespace ulp::test
