// Contrastive distillation: against the paper over steps of training; repeated; continued from a state.
#include <numeric>
#include <sstream>

#include "error_of.h"
#include "golden_losses.h"
#include "ulp/distill/losses/crd.h"

namespace ulp::distill::tests {
namespace {

using ulp::test::contains;
using ulp::test::error_of;

CrdOptions golden_options(const json& one) {
  return {.dim = one["dim"],
          .negatives = one["negatives"],
          .temperature = one["T"],
          .momentum = one["momentum"],
          .positive = *from_word<CrdPositive>(one["positive"].get<std::string>()),
          .other_classes = one["other_classes"]};
}

LossInput crd_input(const json& step, at::ScalarType type) {
  return {.student = {golden_value(step["student"], type).set_requires_grad(true)},
          .teacher = {golden_value(step["teacher"], type)},
          .targets = golden_targets(step),
          .samples = torch::tensor(step["samples"].get<std::vector<int64_t>>())};
}

/// Prepared, with the parameters and memories of the script.
std::shared_ptr<Crd> golden_crd(const json& one, at::ScalarType type) {
  auto loss = std::make_shared<Crd>(golden_options(one));
  loss->prepare(crd_input(one["steps"][0], type), one["samples"]);
  const torch::NoGradGuard no_grad;
  auto own = loss->named_parameters();
  own.update(loss->named_buffers());
  for (const auto& [name, value] : one["tensors"].items()) own[name].copy_(golden_value(value, type));
  return loss;
}

class GoldenCrd : public ::testing::TestWithParam<std::tuple<size_t, at::ScalarType>> {};

TEST_P(GoldenCrd, IsThePapersOverStepsOfTraining) {
  const json& one = golden()["crd"][std::get<0>(GetParam())];
  const at::ScalarType type = std::get<1>(GetParam());
  const double tolerance = type == at::kDouble ? 1e-12 : 1e-6;
  const auto loss = golden_crd(one, type);
  torch::manual_seed(one["generator"].get<uint64_t>());
  for (const json& step : one["steps"]) {
    const LossInput input = crd_input(step, type);
    loss->zero_grad();
    const at::Tensor value = loss->forward(input);
    value.backward();
    EXPECT_LE(relative_error(value, torch::tensor(step["value"].get<double>(), at::kDouble)), tolerance);
    EXPECT_LE(relative_error(input.student[0].grad(), golden_numbers(step["gradients"]["value"])), tolerance);
    for (const auto& parameter : loss->named_parameters()) {
      const at::Tensor expected = golden_numbers(step["gradients"][parameter.key()]);
      EXPECT_LE(relative_error(parameter.value().grad(), expected), tolerance) << parameter.key();
    }
  }
  for (const char* name : {"z", "student_memory", "teacher_memory"})
    EXPECT_LE(relative_error(loss->named_buffers()[name], golden_numbers(one[name])), tolerance) << name;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenCrd,
                         ::testing::Combine(::testing::Range(size_t{0}, golden()["crd"].size()),
                                            ::testing::Values(at::kDouble, at::kFloat)));

/// Training in steps with an optimizer, its values one after the other.
class CrdRun {
 public:
  explicit CrdRun(const CrdOptions& options = {.dim = 6, .negatives = 9})
      : loss(std::make_shared<Crd>(options)) {
    torch::manual_seed(3);
    loss->prepare(input(0), kSamples);
  }

  static LossInput input(int64_t step) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(step));
    return {.student = {at::randn({4, 5}, generator, at::kFloat)},
            .teacher = {at::randn({4, 3, 2, 2}, generator, at::kFloat)},
            .targets = (at::arange(4) + 4 * step).remainder(3),
            .samples = (at::arange(4) + 4 * step).remainder(kSamples)};
  }

  std::vector<double> steps(int64_t first, int64_t count) {
    torch::optim::SGD optimizer(loss->parameters(), 0.1);
    std::vector<double> values;
    for (int64_t step = first; step < first + count; ++step) {
      torch::manual_seed(static_cast<uint64_t>(100 + step));
      optimizer.zero_grad();
      const at::Tensor value = loss->forward(input(step));
      value.backward();
      optimizer.step();
      values.push_back(value.item<double>());
    }
    return values;
  }

  static constexpr int64_t kSamples = 20;
  std::shared_ptr<Crd> loss;
};

TEST(Crd, TwoRunsFromOneSeedHaveTheSameBits) {
  CrdRun first, second;
  EXPECT_EQ(first.steps(0, 8), second.steps(0, 8));
  for (const auto& buffer : first.loss->named_buffers())
    EXPECT_TRUE(torch::equal(buffer.value(), second.loss->named_buffers()[buffer.key()])) << buffer.key();
}

TEST(Crd, ContinuesFromItsStateWithTheSameBits) {
  CrdRun whole, half;
  const std::vector<double> values = whole.steps(0, 10);
  half.steps(0, 5);
  std::stringstream file;
  {
    torch::serialize::OutputArchive archive;
    half.loss->save(archive);
    archive.save_to(file);
  }
  CrdRun continued;
  continued.steps(30, 2);  // other memories, classes and Z than those of the state
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  continued.loss->load(archive);
  EXPECT_EQ(continued.steps(5, 5), std::vector<double>(values.begin() + 5, values.end()));
}

TEST(Crd, ItsGradientIsTheNumericOne) {
  const json& one = golden()["crd"][0];
  const auto loss = golden_crd(one, at::kDouble);
  loss->forward(crd_input(one["steps"][0], at::kDouble));  // sets Z, which is a constant from then on
  loss->eval();
  LossInput input = crd_input(one["steps"][1], at::kDouble);
  const auto value = [&] {
    torch::manual_seed(5);
    return loss->forward(input);
  };
  std::vector<at::Tensor> leaves = loss->parameters();
  leaves.push_back(input.student[0]);
  const auto gradients = torch::autograd::grad({value()}, leaves);
  for (size_t i = 0; i < leaves.size(); ++i) EXPECT_LE(numeric_error(value, leaves[i], gradients[i]), 1e-8);
}

TEST(Crd, LearnsNothingInEvaluation) {
  CrdRun run;
  run.steps(0, 2);
  run.loss->eval();
  std::vector<at::Tensor> before;
  for (const at::Tensor& buffer : run.loss->buffers()) before.push_back(buffer.clone());
  run.loss->forward(CrdRun::input(2));
  const std::vector<at::Tensor> after = run.loss->buffers();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(before[i], after[i]));
}

TEST(Crd, ItsLossFallsInTraining) {
  CrdRun run;
  const std::vector<double> values = run.steps(0, 60);
  const auto mean = [](auto first, auto last) { return std::accumulate(first, last, 0.0) / (last - first); };
  EXPECT_LT(mean(values.end() - 10, values.end()), mean(values.begin(), values.begin() + 10) - 0.5);
}

TEST(Crd, SaysWhatIsMissing) {
  Crd fresh;
  EXPECT_TRUE(
      contains(error_of([&] { fresh.forward(CrdRun::input(0)); }), "[distill.crd] expected prepare()"));
  CrdRun run;
  const auto refused = [&](const auto& change) {
    LossInput input = CrdRun::input(0);
    change(input);
    return error_of([&] { run.loss->forward(input); });
  };
  EXPECT_EQ(refused([](LossInput& i) { i.samples = at::Tensor(); }),
            "[distill.crd] expected numbers of samples, got none");
  EXPECT_TRUE(
      contains(refused([](LossInput& i) { i.samples = i.samples + 17; }), "in [0, 19], got 17 to 20"));
  EXPECT_TRUE(
      contains(refused([](LossInput& i) { i.samples = at::arange(3); }), "expected samples int64 (4)"));
  EXPECT_TRUE(
      contains(refused([](LossInput& i) { i.targets = i.targets.to(at::kInt); }), "targets int64 [4]"));
  EXPECT_TRUE(contains(refused([](LossInput& i) {
                         i.student[0] = at::ones({4, 6});
                       }),
                       "values of 5 numbers"));
  EXPECT_TRUE(contains(error_of([&] { run.loss->prepare(CrdRun::input(0), 20); }), "got a second"));
  EXPECT_TRUE(contains(error_of([&] { Crd().prepare(CrdRun::input(0), 1); }), "2 samples or more"));
  CrdRun same_class({.dim = 6, .negatives = 9, .positive = CrdPositive::same_class});
  LossInput unlabelled = CrdRun::input(0);
  unlabelled.targets = at::Tensor();
  EXPECT_TRUE(contains(error_of([&] { same_class.loss->forward(unlabelled); }), "expected targets"));
  Crd one_class;
  LossInput alike = CrdRun::input(0);
  alike.targets = at::zeros({4}, at::kLong);
  one_class.prepare(alike, 4);
  EXPECT_TRUE(contains(error_of([&] { one_class.forward(alike); }), "got one class"));
}

}  // namespace
}  // namespace ulp::distill::tests
