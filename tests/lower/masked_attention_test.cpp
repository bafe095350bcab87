// Attention with einsum, and with causal masks and masks of padded keys together: one step that has
// LibTorch's numbers, also where a query sees no key.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"

namespace ulp::test {
namespace {

namespace nn = torch::nn;

constexpr int64_t kBlocks = 3, kWide = 4, kTokens = 6;
constexpr double kEndless = std::numeric_limits<double>::infinity();

/// Attention of one input x [n, tokens, features] and a mask of its tokens, which is true where there is one.
struct Masked : nn::Module {
  using Rule = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const at::Tensor& seen)>;
  Rule rule;
  nn::Linear q = register_module("q", nn::Linear(5, kBlocks* kWide));
  nn::Linear k = register_module("k", nn::Linear(5, kBlocks* kWide));
  nn::Linear v = register_module("v", nn::Linear(5, kBlocks* kWide));
  nn::Linear out = register_module("out", nn::Linear(kBlocks* kWide, 5));
  double spread = 1;
  explicit Masked(Rule given) : rule(std::move(given)) {}
  at::Tensor forward(at::Tensor x, at::Tensor seen) {
    const auto heads = [&](nn::Linear& layer) {
      return layer(x).view({x.size(0), kTokens, kBlocks, kWide}).transpose(1, 2);
    };
    const at::Tensor y = rule(heads(q) * spread, heads(k), heads(v), seen);
    return out(y.transpose(1, 2).reshape({x.size(0), kTokens, kBlocks * kWide}));
  }
};

at::Tensor later_tokens() {
  return torch::ones({kTokens, kTokens}, torch::kBool).triu(1);
}

/// Padding on the right, on the left, everywhere, in between, and none.
at::Tensor padding(int64_t batch) {
  const at::Tensor seen = torch::rand({batch, kTokens}) > 0.4;
  seen[0].fill_(true);
  if (batch > 1) seen[1].fill_(false);
  if (batch > 2) seen[2].copy_(torch::arange(kTokens) > 2);
  if (batch > 3) seen[3].copy_(torch::arange(kTokens) < 2);
  return seen;
}

bool same_numbers(const at::Tensor& got, const at::Tensor& want, double tolerance) {
  if (!got.isnan().equal(want.isnan())) return false;
  return torch::allclose(got.nan_to_num(), want.nan_to_num(), tolerance, tolerance);
}

/// Attention steps of the plan; the engine has the graph's numbers at several batch sizes, NaN where that has
/// them.
int64_t steps_of(const Masked::Rule& rule, double spread = 1, double tolerance = 1e-5) {
  torch::manual_seed(11);
  const torch::NoGradGuard no_grad;
  Masked model(rule);
  model.spread = spread;
  model.eval();
  const auto graph = ulp::capture(model, {torch::randn({2, kTokens, 5}), padding(2)});
  graph->eval();
  const runtime::Plan plan = lower(*graph);
  for (const char* isa : {"", "portable"}) {
    runtime::Engine engine(plan, {.threads = 2, .isa = isa});
    for (const int64_t batch : {1, 6, 17}) {
      const at::Tensor x = torch::randn({batch, kTokens, 5}), seen = padding(batch);
      EXPECT_TRUE(same_numbers(run_engine_all(engine, {x, seen})[0], model.forward(x, seen), tolerance))
          << batch << "\n"
          << listing(plan);
    }
  }
  return std::ranges::count(plan.steps, runtime::Op::attention, &runtime::Step::op);
}

at::Tensor products(const at::Tensor& q, const at::Tensor& k) {
  return q.matmul(k.transpose(-2, -1)) / 2.0;
}

at::Tensor of_keys(const at::Tensor& seen) {
  return seen.unsqueeze(1).unsqueeze(2);
}

TEST(MaskedAttention, EinsumOfAnyLettersIsOneStep) {
  using E = std::array<const char*, 2>;
  for (const auto& [scores, values] :
       {E{"bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd"}, E{"nhid,nhjd->nhij", "nhij,nhjd->nhid"},
        E{"abcd,abed->abce", "abce,abed->abcd"}}) {
    const auto rule = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& seen) {
      const at::Tensor s = torch::einsum(scores, {q, k}) / 2.0;
      return torch::einsum(values, {s.masked_fill(of_keys(seen).logical_not(), -1e9).softmax(-1), v});
    };
    EXPECT_EQ(steps_of(rule), 1) << scores;
  }
}

/// Heads that stay behind the tokens: [n, tokens, heads, depth].
TEST(MaskedAttention, EinsumOverHeadsInAnyPlaceIsOneStep) {
  using E = std::array<const char*, 2>;
  for (const auto& [scores, values] :
       {E{"bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd"}, E{"nqhd,nkhd->nhqk", "nhqk,nkhd->nqhd"},
        E{"blhe,bshe->bhls", "bhls,bshd->blhd"}}) {
    const auto rule = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& seen) {
      const auto apart = [](const at::Tensor& x) { return x.transpose(1, 2); };
      const at::Tensor s = torch::einsum(scores, {apart(q), apart(k)}) * 0.5;
      const at::Tensor w = s.masked_fill(of_keys(seen).logical_not(), -1e9).softmax(-1);
      return torch::einsum(values, {w, apart(v)}).transpose(1, 2);
    };
    EXPECT_EQ(steps_of(rule), 1) << scores;
  }
}

TEST(MaskedAttention, EinsumOfOneHeadWithACausalMask) {
  torch::manual_seed(12);
  const torch::NoGradGuard no_grad;
  const Body body = [](const at::Tensor& x) {
    const at::Tensor s = torch::einsum("bqd,bkd->bqk", {x, x.tanh()}) / 2.0;
    return torch::einsum("bqk,bkd->bqd", {s.masked_fill(later_tokens(), -kEndless).softmax(-1), x});
  };
  const auto graph = captured_body(body, torch::randn({2, kTokens, 5}));
  const runtime::Plan plan = lower(*graph);
  EXPECT_EQ(std::ranges::count(plan.steps, runtime::Op::attention, &runtime::Step::op), 1) << listing(plan);
  each_run(plan, {kTokens, 5}, 1, [&](const at::Tensor& x, const at::Tensor& got) {
    EXPECT_LE(relative_error(got, body(x)), 1e-5);
  });
}

/// How each of two masks is said, in both orders, with every pair of fills. A query that sees no key has
/// LibTorch's result.
TEST(MaskedAttention, CausalMasksAndMasksOfKeysAreOneStepInAnyOrder) {
  const auto fill = [](const at::Tensor& s, const at::Tensor& hidden, double number, int way) {
    if (way == 0) return s.masked_fill(hidden, number);
    if (way == 1) return torch::where(hidden, torch::full({}, number), s);
    return torch::where(hidden.logical_not(), s, torch::full_like(s, number));
  };
  const double lowest = std::numeric_limits<float>::lowest();
  int way = 0;
  for (const auto& [later, keys, steps] : {std::tuple{-kEndless, -kEndless, 1},
                                           {-1e9, -1e9, 1},
                                           {lowest, lowest, 1},
                                           {-kEndless, -1e9, -1},
                                           {-kEndless, -1e4, -1},
                                           {-1e9, -kEndless, -1}}) {
    for (const bool keys_first : {false, true}) {
      SCOPED_TRACE(std::to_string(later) + " " + std::to_string(keys) + (keys_first ? " keys first" : ""));
      ++way;
      const auto rule = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& seen) {
        at::Tensor s = products(q, k);
        const at::Tensor hidden = of_keys(seen).logical_not();
        if (keys_first) s = fill(s, hidden, keys, way % 3);
        s = fill(s, later_tokens(), later, (way + 1) % 3);
        if (!keys_first) s = fill(s, hidden, keys, way % 3);
        return s.softmax(-1).matmul(v);
      };
      const int64_t found = steps_of(rule);
      if (steps >= 0) EXPECT_EQ(found, steps);
    }
  }
}

TEST(MaskedAttention, OneMaskOfBothIsOneStep) {
  using Mask = std::function<at::Tensor(const at::Tensor& s, const at::Tensor& seen)>;
  const auto lower_half = [] { return torch::ones({kTokens, kTokens}, torch::kBool).tril(); };
  const std::vector<Mask> masks = {
      [&](const at::Tensor& s, const at::Tensor& seen) {
        return s.masked_fill((of_keys(seen) & lower_half()).logical_not(), -1e9);
      },
      [&](const at::Tensor& s, const at::Tensor& seen) {
        return s.masked_fill(of_keys(seen).logical_not().logical_or(later_tokens()), -kEndless);
      },
      [&](const at::Tensor& s, const at::Tensor& seen) {
        return torch::where(lower_half().logical_and(seen.unsqueeze(1)).unsqueeze(1), s,
                            torch::full({}, -1e9));
      },
      [&](const at::Tensor& s, const at::Tensor& seen) {
        const at::Tensor both = of_keys(seen).to(torch::kFloat) * torch::ones({kTokens, kTokens}).tril();
        return s.masked_fill(both == 0, -1e20);
      },
      [&](const at::Tensor& s, const at::Tensor& seen) {
        const at::Tensor none = torch::zeros({1, 1, 1, 1});
        return s + none.masked_fill(of_keys(seen).expand({-1, 1, kTokens, -1}).logical_not() | later_tokens(),
                                    -kEndless);
      },
      [&](const at::Tensor& s, const at::Tensor& seen) {
        const double lowest = std::numeric_limits<float>::lowest();
        return s + torch::where(of_keys(seen) & lower_half(), 0.0, lowest).to(torch::kFloat);
      },
      [&](const at::Tensor& s, const at::Tensor& seen) {
        return s + torch::full({kTokens, kTokens}, -kEndless).triu(1) +
               (1.0 - of_keys(seen).to(torch::kFloat)) * -1e4;
      }};
  for (size_t i = 0; i < masks.size(); ++i) {
    const auto rule = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& seen) {
      return masks[i](products(q, k), seen).softmax(-1).matmul(v);
    };
    EXPECT_EQ(steps_of(rule), 1) << i;
  }
}

TEST(MaskedAttention, NodesWithMasksOfTruthAreOneStep) {
  const std::vector<Masked::Rule> rules = {
      [](auto q, auto k, auto v, auto seen) {
        return torch::scaled_dot_product_attention(q, k, v, of_keys(seen));
      },
      [](auto q, auto k, auto v, auto seen) {
        return torch::scaled_dot_product_attention(q, k, v, of_keys(seen) & later_tokens().logical_not());
      },
      [](auto q, auto k, auto v, auto seen) {
        return torch::scaled_dot_product_attention(
            q, k, v,
            of_keys(seen).expand({-1, kBlocks, kTokens, -1}).logical_and(later_tokens().logical_not()));
      }};
  for (size_t i = 0; i < rules.size(); ++i) EXPECT_EQ(steps_of(rules[i]), 1) << i;
}

/// Numbers that forward computes for the keys, where they hide all that a query sees: NaN, as in LibTorch.
TEST(MaskedAttention, ComputedNumbersThatHideAllKeys) {
  const auto row = [](const at::Tensor& seen) {
    return torch::log(of_keys(seen).to(torch::kFloat));  // 0 and -infinity
  };
  const std::vector<Masked::Rule> rules = {
      [&](auto q, auto k, auto v, auto seen) { return (products(q, k) + row(seen)).softmax(-1).matmul(v); },
      [&](auto q, auto k, auto v, auto seen) {
        return (products(q, k) + row(seen)).masked_fill(later_tokens(), -kEndless).softmax(-1).matmul(v);
      },
      [&](auto q, auto k, auto v, auto seen) {
        return (products(q, k).masked_fill(later_tokens(), -kEndless) + row(seen)).softmax(-1).matmul(v);
      },
      [&](auto q, auto k, auto v, auto seen) {
        return torch::scaled_dot_product_attention(q, k, v, row(seen));
      }};
  for (size_t i = 0; i < rules.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(steps_of(rules[i]), 1);
  }
}

/// Masks of zeros hide nothing.
TEST(MaskedAttention, MasksOfZerosAreNone) {
  const auto zeros = [](at::IntArrayRef sizes) { return torch::zeros(sizes); };
  const std::vector<Masked::Rule> rules = {
      [&](auto q, auto k, auto v, auto) {
        return torch::scaled_dot_product_attention(q, k, v, zeros({kTokens, kTokens}));
      },
      [&](auto q, auto k, auto v, auto) {
        return torch::scaled_dot_product_attention(q, k, v, zeros({q.size(0), 1, 1, kTokens}));
      },
      [&](auto q, auto k, auto v, auto seen) {
        const at::Tensor row =
            torch::zeros_like(of_keys(seen), torch::kFloat).masked_fill(of_keys(seen).logical_not(), -1e9);
        return torch::scaled_dot_product_attention(q, k, v, row + zeros({kTokens, kTokens}));
      },
      [&](auto q, auto k, auto v, auto) {
        return (products(q, k) + zeros({kTokens, kTokens})).softmax(-1).matmul(v);
      },
      [&](auto q, auto k, auto v, auto) {
        return (zeros({1, kBlocks, 1, kTokens}) + products(q, k) - zeros({kTokens, 1})).softmax(-1).matmul(v);
      }};
  for (size_t i = 0; i < rules.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(steps_of(rules[i]), 1);
  }
}

/// Products of [n * heads, tokens, depth] that are added to something, as GPT-NeoX and Bloom have them.
TEST(MaskedAttention, ProductsOfHeadsThatAreAddedAreOneStep) {
  const auto apart = [](const at::Tensor& x) { return x.reshape({-1, kTokens, kWide}); };
  const auto heads = [](const at::Tensor& x) { return x.view({-1, kBlocks, kTokens, kTokens}); };
  const auto turned = [=](const at::Tensor& k) { return apart(k).transpose(1, 2); };
  const auto zeros = [](const at::Tensor& q) {
    return torch::zeros({q.size(0) * kBlocks, kTokens, kTokens});
  };
  // A slope for each head times the place of a key.
  const auto alibi = [](const at::Tensor& seen) {
    const at::Tensor places = (seen.to(torch::kFloat).cumsum(-1) - 1).unsqueeze(1);
    return (places * torch::tensor({0.5F, 0.25F, 0.125F}).view({1, kBlocks, 1})).reshape({-1, 1, kTokens});
  };
  const std::vector<Masked::Rule> fused = {
      [&](auto q, auto k, auto v, auto seen) {
        const at::Tensor s = heads(torch::baddbmm(zeros(q), apart(q), turned(k), 1, 0.5));
        return s.masked_fill(later_tokens(), -1e9)
            .masked_fill(of_keys(seen).logical_not(), -1e9)
            .softmax(-1)
            .matmul(v);
      },
      [&](auto q, auto k, auto v, auto seen) {
        const at::Tensor s = heads(torch::baddbmm(zeros(q), apart(q), turned(k), 1, 0.5));
        return s.masked_fill(of_keys(seen).logical_not(), -1e9).softmax(-1).matmul(v);
      },
      [&](auto q, auto k, auto v, auto) {  // all of it with three dimensions
        const at::Tensor s = torch::baddbmm(zeros(q), apart(q), turned(k), 0, 0.5);
        const at::Tensor w = (s + torch::full({kTokens, kTokens}, -kEndless).triu(1)).softmax(-1);
        return torch::bmm(w, apart(v)).view({-1, kBlocks, kTokens, kWide});
      },
      [&](auto q, auto k, auto v, auto) {
        const at::Tensor w = (torch::bmm(apart(q), turned(k)) * 0.5).softmax(2);
        return torch::bmm(w, apart(v)).view({-1, kBlocks, kTokens, kWide});
      }};
  for (size_t i = 0; i < fused.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(steps_of(fused[i]), 1);
  }
  // The step has no numbers of its own for each head: right, as they are written.
  const std::vector<Masked::Rule> written = {
      [&](auto q, auto k, auto v, auto seen) {
        const at::Tensor s = heads(torch::baddbmm(alibi(seen), apart(q), turned(k), 1, 0.5));
        return s.masked_fill(later_tokens(), -1e9).softmax(-1).matmul(v);
      },
      [&](auto q, auto k, auto v, auto seen) {
        const at::Tensor s = torch::baddbmm(alibi(seen), apart(q), turned(k), 0.7, 0.5);
        const at::Tensor w = heads(s).softmax(-1).reshape({-1, kTokens, kTokens});
        return torch::bmm(w, apart(v)).view({-1, kBlocks, kTokens, kWide});
      }};
  for (size_t i = 0; i < written.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(steps_of(written[i]), 0);
  }
}

/// A finite number over all keys of a sample leaves nothing of large scores where it takes their place, and
/// some of them where it is added.
TEST(MaskedAttention, FiniteMasksOverAllKeys) {
  for (const double number : {-1e4, -1e7, -1e8, -1e9, -1e30}) {
    SCOPED_TRACE(number);
    const auto filled = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& seen) {
      return products(q, k).masked_fill(of_keys(seen).logical_not(), number).softmax(-1).matmul(v);
    };
    EXPECT_EQ(steps_of(filled, 40), number > -1e7 ? 0 : 1);
    // One unit in the last place of the sum is so much of a weight, where rounding falls on the other side.
    const double unit = std::min(1.0, std::abs(number) * 0x1p-23);
    const auto added = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& seen) {
      return (products(q, k) + (1.0 - of_keys(seen).to(torch::kFloat)) * number).softmax(-1).matmul(v);
    };
    EXPECT_EQ(steps_of(added, 1, std::max(1e-5, 2 * unit)), 1);
  }
}

/// Masks that look at something else than the keys of a sample run as they are written.
TEST(MaskedAttention, OtherMasksStayRight) {
  const std::vector<Masked::Rule> rules = {
      [](auto q, auto k, auto v, auto seen) {  // of queries
        return products(q, k)
            .masked_fill(seen.view({-1, 1, kTokens, 1}).logical_not(), -1e9)
            .softmax(-1)
            .matmul(v);
      },
      [](auto q, auto k, auto v, auto seen) {  // of both
        const at::Tensor both = seen.unsqueeze(1) & seen.unsqueeze(2);
        return products(q, k).masked_fill(both.unsqueeze(1).logical_not(), -1e9).softmax(-1).matmul(v);
      },
      [](auto q, auto k, auto v, auto seen) {  // visible where either says so
        return products(q, k)
            .masked_fill((of_keys(seen) | later_tokens()).logical_not(), -1e9)
            .softmax(-1)
            .matmul(v);
      },
      [](auto q, auto k, auto v, auto seen) {  // hidden where both say so
        return products(q, k).masked_fill(of_keys(seen) & later_tokens(), -1e9).softmax(-1).matmul(v);
      },
      [](auto q, auto k, auto v, auto seen) {  // weights that are set to 0 afterwards
        const at::Tensor w = products(q, k).masked_fill(of_keys(seen).logical_not(), -1e9).softmax(-1);
        return w.masked_fill(later_tokens(), 0).matmul(v);
      }};
  for (size_t i = 0; i < rules.size(); ++i) EXPECT_EQ(steps_of(rules[i]), 0) << i;
}

}  // namespace
}  // namespace ulp::test
