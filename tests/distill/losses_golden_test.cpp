// Every loss against the papers' formulas in float64 (tests/golden/make_distill.py): values and gradients.
#include "golden_losses.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/distill/losses/registry.h"

namespace ulp::distill::tests {
namespace {

class GoldenLosses : public ::testing::TestWithParam<size_t> {
 protected:
  const json& one() const { return golden()["cases"][GetParam()]; }
  std::shared_ptr<Loss> loss() const {
    return make_loss(one()["loss"], one()["options"].get<std::vector<std::string>>());
  }
  void expect_near(const LossInput& input, double tolerance) const {
    expect_near(loss()->forward(input), input, tolerance);
  }
  void expect_near(const at::Tensor& value, const LossInput& input, double tolerance) const {
    ASSERT_EQ(value.dim(), 0);
    value.backward();
    EXPECT_EQ(value.scalar_type(), input.student[0].scalar_type());
    EXPECT_LE(relative_error(value, torch::tensor(one()["value"].get<double>(), at::kDouble)), tolerance);
    for (size_t i = 0; i < input.student.size(); ++i) {
      EXPECT_LE(relative_error(input.student[i].grad(), golden_numbers(one()["gradients"][i])), tolerance);
      EXPECT_FALSE(input.teacher[i].grad().defined());
    }
  }
};

TEST_P(GoldenLosses, InDouble) {
  expect_near(golden_input(one(), at::kDouble), 1e-11);
}

TEST_P(GoldenLosses, InFloat) {
  expect_near(golden_input(one(), at::kFloat), 1e-6);
}

TEST_P(GoldenLosses, UnderAutocast) {
  const LossInput input = golden_input(one(), at::kFloat);
  at::Tensor value;
  {
    const amp::Autocast autocast(at::kCPU, at::kBFloat16);
    value = loss()->forward(input);
  }
  expect_near(value, input, 1e-6);
}

TEST_P(GoldenLosses, WithATeacherThatHasGradients) {
  LossInput input = golden_input(one(), at::kDouble);
  for (at::Tensor& value : input.teacher) value.set_requires_grad(true);
  expect_near(input, 1e-11);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenLosses, ::testing::Range(size_t{0}, golden()["cases"].size()),
                         [](const auto& info) {
                           const json& one = golden()["cases"][info.param];
                           return one["loss"].get<std::string>() + "_" + std::to_string(info.param);
                         });

TEST(GoldenLossesInChannelsLast, AreThoseOfTheUsualOrder) {
  int images = 0;
  for (const json& one : golden()["cases"]) {
    LossInput input = golden_input(one, at::kDouble);
    if (input.student[0].dim() != 4 || input.teacher[0].dim() != 4) continue;
    ++images;
    const std::vector<at::Tensor> leaves = input.student;
    for (auto* values : {&input.student, &input.teacher})
      for (at::Tensor& value : *values) value = value.contiguous(at::MemoryFormat::ChannelsLast);
    make_loss(one["loss"], one["options"].get<std::vector<std::string>>())->forward(input).backward();
    for (size_t i = 0; i < leaves.size(); ++i)
      EXPECT_LE(relative_error(leaves[i].grad(), golden_numbers(one["gradients"][i])), 1e-11) << one["loss"];
  }
  EXPECT_GE(images, 8);
}

TEST(GoldenLossesFile, HoldsEveryLoss) {
  std::set<std::string> held = {"crd"};  // losses_crd_test.cpp
  for (const json& one : golden()["cases"]) held.insert(one["loss"]);
  for (const LossEntry& entry : loss_entries()) EXPECT_TRUE(held.contains(entry.name)) << entry.name;
}

}  // namespace
}  // namespace ulp::distill::tests
