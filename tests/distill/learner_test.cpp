// The cross-entropy of what has labels.
#include "networks.h"
#include "ulp/distill/distillation_task.h"

namespace ulp::distill::tests {
namespace {

TEST(LabelledCrossEntropy, IsTheMeanOverWhatHasALabel) {
  const at::Tensor logits = torch::randn({2, 3, 5}).set_requires_grad(true);
  const at::Tensor targets =
      torch::tensor(std::vector<int64_t>{4, kUnlabelled, 0, kUnlabelled, kUnlabelled, 2});
  const at::Tensor loss = labelled_cross_entropy(logits, targets.view({2, 3}));
  const at::Tensor known = torch::tensor(std::vector<int64_t>{0, 2, 5});
  const at::Tensor expected = torch::nn::functional::cross_entropy(
      logits.flatten(0, 1).index_select(0, known), targets.index_select(0, known));
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-6);
  loss.backward();
  const at::Tensor moved = logits.grad().abs().sum(2).flatten();
  EXPECT_TRUE(moved.gt(0).equal(targets.ne(kUnlabelled)));
}

TEST(LabelledCrossEntropy, IsZeroWithoutLabelsAndFp32) {
  const at::Tensor logits = torch::randn({2, 5}).to(torch::kBFloat16).set_requires_grad(true);
  const at::Tensor none = torch::full({2}, kUnlabelled, torch::kLong);
  const at::Tensor loss = labelled_cross_entropy(logits, none);
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  loss.backward();
  EXPECT_EQ(logits.grad().abs().sum().item<double>(), 0);
}

TEST(LabelledCrossEntropy, OtherShapesAreRefused) {
  const at::Tensor logits = torch::randn({2, 5});
  EXPECT_ERROR(labelled_cross_entropy(logits, {}), "got [2, 5] for none");
  EXPECT_ERROR(labelled_cross_entropy(logits, torch::zeros({3}, torch::kLong)), "got [2, 5] for [3]");
  EXPECT_ERROR(labelled_cross_entropy(logits, torch::zeros({2, 5}, torch::kLong)), "got [2, 5] for [2, 5]");
}

}  // namespace
}  // namespace ulp::distill::tests
