// Attention in the spellings of people: one step where the engine has it, as written where it has not.
#include <gtest/gtest.h>

#include <limits>

#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"

namespace ulp::test {
namespace {

constexpr int64_t kHeads = 3, kDepth = 5, kLength = 7;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Self attention between two layers; how the weights come from q, k and v is the caller's.
struct Attend : torch::nn::Module {
  using Rule = std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const at::Tensor& x)>;
  Rule rule;
  torch::nn::Linear qkv{nullptr}, out{nullptr};
  explicit Attend(Rule given) : rule(std::move(given)) {
    qkv = register_module("qkv", torch::nn::Linear(4, 3 * kHeads * kDepth));
    out = register_module("out", torch::nn::Linear(kHeads * kDepth, 4));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = qkv->forward(x).chunk(3, 2);
    const auto heads = [&](const at::Tensor& rows) {
      return rows.view({x.size(0), kLength, kHeads, kDepth}).transpose(1, 2);
    };
    const at::Tensor mixed = rule(heads(parts[0]), heads(parts[1]), heads(parts[2]), x);
    return out->forward(mixed.transpose(1, 2).reshape({x.size(0), kLength, kHeads * kDepth}));
  }
};

/// How many attention steps the plan has; the engine's results are the graph's at three batch sizes.
int attention_steps(const Attend::Rule& rule) {
  torch::manual_seed(4);
  const torch::NoGradGuard no_grad;
  const auto module = captured(std::make_shared<Attend>(rule), torch::randn({2, kLength, 4}));
  const runtime::Plan plan = lower(*module);
  each_run(plan, {kLength, 4}, 2, [&](const at::Tensor& x, const at::Tensor& got) {
    EXPECT_LE(relative_error(got, module->forward(x)), 1e-5) << listing(plan);
  });
  return static_cast<int>(std::ranges::count(plan.steps, runtime::Op::attention, &runtime::Step::op));
}

at::Tensor later() {
  return torch::ones({kLength, kLength}, torch::kBool).triu(1);
}

TEST(WrittenAttention, ScaledAndMaskedInEveryUsualWayIsOneStep) {
  const double root = std::sqrt(static_cast<double>(kDepth));
  const auto scores = [](const at::Tensor& q, const at::Tensor& k) { return q.matmul(k.transpose(-2, -1)); };
  const std::vector<std::pair<const char*, Attend::Rule>> spellings = {
      {"divided", [=](auto q, auto k, auto v, auto) { return (scores(q, k) / root).softmax(-1).matmul(v); }},
      {"multiplied", [=](auto q, auto k, auto v, auto) { return (scores(q, k) * 0.3).softmax(3).matmul(v); }},
      {"query scaled",
       [=](auto q, auto k, auto v, auto) { return scores(q * 0.3, k).softmax(-1).matmul(v); }},
      {"key permuted",
       [=](auto q, auto k, auto v, auto) {
         return torch::matmul((torch::matmul(q, k.permute({0, 1, 3, 2})) / root).softmax(-1), v);
       }},
      {"filled",
       [=](auto q, auto k, auto v, auto) {
         return (scores(q, k) / root).masked_fill(later(), -kInfinity).softmax(-1).matmul(v);
       }},
      {"filled with a large number",
       [=](auto q, auto k, auto v, auto) {
         const at::Tensor seen = torch::tril(torch::ones({kLength, kLength})).view({1, 1, kLength, kLength});
         return (scores(q, k) * 0.4).masked_fill(seen == 0, -1e9).softmax(-1).matmul(v);
       }},
      {"added",
       [=](auto q, auto k, auto v, auto) {
         const at::Tensor mask = torch::full({kLength, kLength}, -kInfinity).triu(1);
         return torch::softmax(scores(q, k) / root + mask, -1).matmul(v);
       }},
      {"chosen",
       [=](auto q, auto k, auto v, auto) {
         return torch::where(later().logical_not(), scores(q, k) / root, torch::tensor(-1e10F))
             .softmax(-1)
             .matmul(v);
       }},
      {"dropout",
       [=](auto q, auto k, auto v, auto) {
         return torch::dropout((scores(q, k) / root).softmax(-1), 0.1, false).matmul(v);
       }},
      {"keys added",
       [=](auto q, auto k, auto v, auto x) {
         const at::Tensor mask =
             (x.select(2, 0) > 0.5).to(torch::kFloat).view({-1, 1, 1, kLength}) * -10000.0;
         return (scores(q, k) / root + mask).softmax(-1).matmul(v);
       }},
      {"keys filled",
       [=](auto q, auto k, auto v, auto x) {
         const at::Tensor mask = (x.select(2, 0) > 0.5).unsqueeze(1).unsqueeze(2);
         return (scores(q, k) / root).masked_fill(mask, -1e9).softmax(-1).matmul(v);
       }},
      {"node with a triangle",
       [=](auto q, auto k, auto v, auto) {
         return torch::scaled_dot_product_attention(q, k, v, later().logical_not());
       }},
      {"a node whose keys are all hidden",
       [=](auto q, auto k, auto v, auto x) {
         return torch::scaled_dot_product_attention(q, k, v,
                                                    (x.select(2, 0) > 100).view({-1, 1, 1, kLength}));
       }},
      {"node with added keys", [=](auto q, auto k, auto v, auto x) {
         return torch::scaled_dot_product_attention(q, k, v, x.select(2, 1).view({-1, 1, 1, kLength}));
       }}};
  for (const auto& [name, rule] : spellings) EXPECT_EQ(attention_steps(rule), 1) << name;
}

TEST(WrittenAttention, OtherMasksRunAsTheyAreWritten) {
  torch::manual_seed(5);
  const at::Tensor bias = torch::randn({1, kHeads, kLength, kLength});
  const auto scores = [](const at::Tensor& q, const at::Tensor& k) {
    return q.matmul(k.transpose(-2, -1)) * 0.3;
  };
  const std::vector<std::pair<const char*, Attend::Rule>> spellings = {
      {"bias of heads",
       [=](auto q, auto k, auto v, auto) { return (scores(q, k) + bias).softmax(-1).matmul(v); }},
      {"soft triangle",
       [=](auto q, auto k, auto v, auto) {
         return (scores(q, k) + torch::ones({kLength, kLength}).triu(1) * -2.0).softmax(-1).matmul(v);
       }},
      {"a window",
       [=](auto q, auto k, auto v, auto) {
         const at::Tensor far = later().logical_or(later().roll(2, 1));
         return scores(q, k).masked_fill(far & later().t().logical_not(), -1e9).softmax(-1).matmul(v);
       }},
      {"scaled after the mask",
       [=](auto q, auto k, auto v, auto) {
         return (scores(q, k).masked_fill(later(), -3.0) * 2.0).softmax(-1).matmul(v);
       }},
      {"weights read twice",
       [=](auto q, auto k, auto v, auto) {
         const at::Tensor weights = scores(q, k).softmax(-1);
         return weights.matmul(v) + weights.sum(-1, true);
       }},
      {"node with a bias",
       [=](auto q, auto k, auto v, auto) { return torch::scaled_dot_product_attention(q, k, v, bias); }},
      {"a mask that is scaled",
       [=](auto q, auto k, auto v, auto) {
         return (scores(q, k).masked_fill(later(), -1e9) * 0.0).softmax(-1).matmul(v);
       }},
      {"an added mask that is divided",
       [=](auto q, auto k, auto v, auto x) {
         return ((scores(q, k) + x.select(2, 0).view({-1, 1, 1, kLength})) / 2.0).softmax(-1).matmul(v);
       }},
      {"a mask added twice over",
       [=](auto q, auto k, auto v, auto x) {
         return torch::add(scores(q, k), x.select(2, 0).view({-1, 1, 1, kLength}), 2.0).softmax(-1).matmul(v);
       }},
      {"a moderate fill",
       [=](auto q, auto k, auto v, auto x) {
         return scores(q, k)
             .masked_fill((x.select(2, 0) > -100).view({-1, 1, 1, kLength}), -1e4)
             .softmax(-1)
             .matmul(v);
       }},
      {"one query",
       [=](auto q, auto k, auto v, auto) {
         return scores(q.narrow(2, 0, 1), k).masked_fill(later(), -1e9).softmax(-1).matmul(v);
       }},
      {"one key",
       [=](auto q, auto k, auto v, auto) {
         return scores(q, k.narrow(2, 0, 1))
             .expand({-1, -1, -1, kLength})
             .masked_fill(later(), -1e9)
             .softmax(-1)
             .matmul(v);
       }},
      {"node with truth", [=](auto q, auto k, auto v, auto) {
         return torch::scaled_dot_product_attention(q, k, v, bias > -1);
       }}};
  for (const auto& [name, rule] : spellings) EXPECT_EQ(attention_steps(rule), 0) << name;
}

}  // namespace
}  // namespace ulp::test
