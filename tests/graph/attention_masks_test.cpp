// Attention with masks, written out, in its canonical form: it has the module's numbers, NaN where all keys
// of a query are hidden, and becomes a node where that cannot be.
#include <limits>
#include <random>

#include "same.h"
#include "ulp/graph/passes/fixed_tensor.h"
#include "ulp/graph/passes/pass.h"

namespace {

using namespace ulp;
using namespace ulp::graph;
using namespace ulp::test;
namespace nn = torch::nn;

constexpr int64_t kMaskedTokens = 5;
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// softmax(x x^T + mask) tanh(x). The mask is the model's or the caller's.
struct MaskedProductsImpl : nn::Module {
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& given)> mask;
  at::Tensor held;
  at::Tensor forward(const at::Tensor& x, const at::Tensor& given) {
    return (torch::bmm(x, x.transpose(1, 2)) + mask(x, given)).softmax(-1).bmm(x.tanh());
  }
};
TORCH_MODULE(MaskedProducts);

bool same_or_nan(const at::Tensor& got, const at::Tensor& want) {
  return got.isnan().equal(want.isnan()) && torch::allclose(got.nan_to_num(), want.nan_to_num(), 1e-5, 1e-5);
}

/// How many nodes of attention the canonical form has, whose numbers are those of the module.
int64_t attention_nodes(MaskedProducts& model, const at::Tensor& given) {
  model->eval();
  const torch::NoGradGuard no_grad;
  const auto captured = ulp::capture(model, {torch::randn({3, kMaskedTokens, 4}), given});
  captured->eval();
  canonicalize(captured->graph());
  captured->graph().verify();
  captured->recompile();
  const at::Tensor x = torch::randn({3, kMaskedTokens, 4});
  EXPECT_TRUE(same_or_nan(captured->forward_all({x, given})[0], model->forward(x, given)))
      << captured->graph();
  return count(captured->graph(), "aten::scaled_dot_product_attention");
}

/// Each score is hidden by a half; of every mask the first row is hidden wholly or not at all.
at::Tensor drawn(std::vector<int64_t> sizes, double hidden, bool hides_a_row) {
  at::Tensor mask = torch::zeros(sizes).masked_fill(torch::rand(sizes) > 0.5, hidden);
  mask.select(-1, 0).zero_();
  at::Tensor first = mask.view({-1, sizes.back()})[0];
  first.fill_(hides_a_row ? hidden : 0.0);
  return mask;
}

TEST(AttentionMasks, FixedMasksWithAKeyForEachQueryBecomeANode) {
  torch::manual_seed(3);
  for (const double hidden : {kMinusInfinity, -1e9, double(std::numeric_limits<float>::lowest())}) {
    for (const bool hides_a_row : {false, true}) {
      for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
               {kMaskedTokens, kMaskedTokens}, {1, kMaskedTokens}, {1, kMaskedTokens, kMaskedTokens}}) {
        SCOPED_TRACE(testing::Message()
                     << hidden << " whole row " << hides_a_row << " rank " << sizes.size());
        MaskedProducts constant, buffer, made;
        const at::Tensor mask = drawn(sizes, hidden, hides_a_row);
        constant->mask = [=](const at::Tensor&, const at::Tensor&) { return mask; };
        buffer->held = buffer->register_buffer("held", mask);
        buffer->mask = [&](const at::Tensor&, const at::Tensor&) { return buffer->held; };
        made->held = made->register_buffer("held", mask < 0);
        made->mask = [&](const at::Tensor&, const at::Tensor&) {
          return torch::zeros(made->held.sizes()).masked_fill(made->held, hidden);
        };
        const bool fuses = !hides_a_row || hidden == -1e9;
        for (MaskedProducts& model : {std::ref(constant), std::ref(buffer), std::ref(made)})
          EXPECT_EQ(attention_nodes(model, torch::zeros({3, 1, 1})), fuses ? 1 : 0);
      }
    }
  }
}

TEST(AttentionMasks, MasksThatAreComputedStayWritten) {
  torch::manual_seed(4);
  for (const double hidden : {kMinusInfinity, -1e9}) {
    for (const bool hides_a_row : {false, true}) {
      MaskedProducts model;
      model->mask = [](const at::Tensor&, const at::Tensor& given) { return given; };
      EXPECT_EQ(attention_nodes(model, drawn({3, 1, kMaskedTokens}, hidden, hides_a_row)), 0);
      EXPECT_EQ(attention_nodes(model, drawn({3, kMaskedTokens, kMaskedTokens}, hidden, hides_a_row)), 0);
      model->mask = [=](const at::Tensor& x, const at::Tensor&) {
        return torch::zeros({}).masked_fill(x.select(2, 0).unsqueeze(1) > (hides_a_row ? -9 : 0), hidden);
      };
      EXPECT_EQ(attention_nodes(model, torch::zeros({3, 1, 1})), 0);
    }
  }
}

/// What is no mask: truth and whole numbers that are added, and what makes more of the scores.
TEST(AttentionMasks, WhatIsAddedOtherwiseStaysWritten) {
  torch::manual_seed(5);
  const at::Tensor zeros = torch::zeros({3, 1, 1});
  const at::Tensor truth = torch::rand({kMaskedTokens, kMaskedTokens}) > 0.5;
  MaskedProducts model;
  model->mask = [&](const at::Tensor&, const at::Tensor&) { return truth; };
  EXPECT_EQ(attention_nodes(model, zeros), 0);
  model->mask = [&](const at::Tensor&, const at::Tensor&) { return truth.to(torch::kLong) * 3; };
  EXPECT_EQ(attention_nodes(model, zeros), 0);
  const at::Tensor one = torch::randn({1}), scalar = torch::tensor(0.5F);
  model->mask = [&](const at::Tensor&, const at::Tensor&) { return one; };
  attention_nodes(model, zeros);
  model->mask = [&](const at::Tensor&, const at::Tensor&) { return scalar; };
  attention_nodes(model, zeros);
}

/// A mask that the graph writes is what it is in each run.
TEST(AttentionMasks, WrittenBuffersAreNotFixed) {
  torch::manual_seed(6);
  MaskedProducts model;
  model->held = model->register_buffer("held", torch::zeros({kMaskedTokens, kMaskedTokens}));
  model->mask = [&](const at::Tensor& x, const at::Tensor&) {
    model->held.fill_(kMinusInfinity);
    return model->held + 0 * x.sum();
  };
  const torch::NoGradGuard no_grad;
  model->eval();
  const auto captured = ulp::capture(model, {torch::randn({3, kMaskedTokens, 4}), torch::zeros({3, 1, 1})});
  for (const auto& node : captured->graph().nodes()) {
    if (node->kind() == Node::Kind::attribute)
      EXPECT_FALSE(fixed_tensor(captured->graph(), *node->output()).defined()) << captured->graph();
  }
  EXPECT_EQ(attention_nodes(model, torch::zeros({3, 1, 1})), 0);
}

}  // namespace
