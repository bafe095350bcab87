// DeiT's distillation token (Touvron et al. 2021): one token learns the labels, another one the teacher's decisions.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ulp/distill/distiller.h"
#include "ulp/distill/teacher.h"
#include "ulp/graph/capture/capture.h"

namespace ulp::distill {
namespace {

constexpr int64_t kPatches = 4, kValues = 6, kClasses = 3, kWidth = 16;

/// Two tokens before the patches, one layer of attention, a head for each token.
struct SmallDeit final : torch::nn::Module {
  torch::nn::Linear patches{nullptr}, qkv{nullptr}, out{nullptr}, head{nullptr}, head_dist{nullptr};
  at::Tensor cls_token, dist_token;

  SmallDeit() {
    patches = register_module("patches", torch::nn::Linear(kValues, kWidth));
    qkv = register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth));
    out = register_module("out", torch::nn::Linear(kWidth, kWidth));
    head = register_module("head", torch::nn::Linear(kWidth, kClasses));
    head_dist = register_module("head_dist", torch::nn::Linear(kWidth, kClasses));
    cls_token = register_parameter("cls_token", torch::randn({1, 1, kWidth}));
    dist_token = register_parameter("dist_token", torch::randn({1, 1, kWidth}));
  }
  std::tuple<at::Tensor, at::Tensor> forward(at::Tensor x) {
    const int64_t n = x.size(0);
    at::Tensor t =
        torch::cat({cls_token.expand({n, 1, kWidth}), dist_token.expand({n, 1, kWidth}), patches(x)}, 1);
    const auto parts = qkv(t).chunk(3, -1);
    t = t + out(at::scaled_dot_product_attention(parts[0], parts[1], parts[2]));
    return {head(t.select(1, 0)), head_dist(t.select(1, 1))};
  }
};

/// Decides for the class after the right one.
struct NextClass final : torch::nn::Module {
  at::Tensor weight;
  explicit NextClass(const at::Tensor& right) : weight(register_buffer("weight", right.roll(1, 0))) {}
  at::Tensor forward(at::Tensor x) { return torch::linear(x.mean(1), weight); }
};

TEST(DeitToken, LearnsTheTeachersDecisions) {
  torch::manual_seed(3);
  const at::Tensor right = torch::randn({kClasses, kValues});
  const at::Tensor x = torch::randn({96, kPatches, kValues});
  const at::Tensor labels = torch::linear(x.mean(1), right).argmax(1);
  SmallDeit network;
  NextClass decides(right);
  const auto student = capture(network, {x}), teacher = capture(decides, {x});
  const Batch batch{{x}, labels};
  Distiller learner({.student = student,
                     .teacher = graph_teacher(*teacher, {"output"}),
                     .recipe = Recipe::from_terms({"hard:0.5,@output:1=output"}),
                     .example = batch});
  torch::optim::Adam optimizer(learner.parameters(), 0.02);
  for (int step = 0; step < 80; ++step) {
    optimizer.zero_grad();
    learner.forward(batch);
    learner.loss(batch).backward();
    optimizer.step();
  }
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> heads = student->forward_all({x});
  const auto share = [](const at::Tensor& logits, const at::Tensor& classes) {
    return logits.argmax(1).eq(classes).to(torch::kDouble).mean().item<double>();
  };
  EXPECT_GT(share(heads[0], labels), 0.9);
  EXPECT_GT(share(heads[1], (labels + 1) % kClasses), 0.9);
}

}  // namespace
}  // namespace ulp::distill
