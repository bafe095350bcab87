// Properties of the losses of distillation: limits, 16-bit values, gradients by differences, errors.
#include <sstream>

#include "error_of.h"
#include "golden_losses.h"
#include "ulp/distill/losses/registry.h"

namespace ulp::distill::tests {
namespace {

using ulp::test::contains;
using ulp::test::error_of;

at::Tensor normal(at::IntArrayRef shape, uint64_t seed, double scale = 1) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::kDouble) * scale;
}

TEST(KdLoss, ItsGradientAtAHighTemperatureIsTheDifferenceOfCentredLogits) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const at::Tensor student = normal({5, 7}, 1, 3).to(type).set_requires_grad(true);
    const at::Tensor teacher = normal({5, 7}, 2, 3).to(type);
    make_loss("kd", {"T=1000"})->forward({.student = {student}, .teacher = {teacher}}).backward();
    const auto centred = [](const at::Tensor& z) { return z - z.mean(1, /*keepdim=*/true); };
    const at::Tensor expected = (centred(student) - centred(teacher)).detach().to(at::kDouble) / (7 * 5);
    EXPECT_LE(relative_error(student.grad(), expected), 0.01) << type;
  }
}

TEST(KdLoss, IsZeroForOneselfWithoutAGradient) {
  for (const char* name : {"kd", "mutual", "logits", "mse", "cosine", "sp", "rkd", "pkt", "cc"}) {
    const at::Tensor value = normal({5, 7}, 3).to(at::kFloat).set_requires_grad(true);
    const at::Tensor loss = make_loss(name)->forward({.student = {value}, .teacher = {value}});
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), 0, 2e-6) << name;
    EXPECT_LE(value.grad().abs().max().item<double>(), 2e-6) << name;
  }
}

TEST(DkdLoss, IsKdWhereItsWeightsAreKdsOwn) {
  // KD = TCKD + (1 - p_target) NCKD (Zhao et al., eq. 7): a row alone has one such weight.
  const at::Tensor student = normal({1, 6}, 4, 3), teacher = normal({1, 6}, 5, 3);
  const double others = 1 - (teacher / 4).softmax(1)[0][2].item<double>();
  const LossInput input{
      .student = {student}, .teacher = {teacher}, .targets = torch::tensor({int64_t{2}}), .progress = 20};
  std::ostringstream beta;
  beta << std::setprecision(17) << "beta=" << others;
  EXPECT_NEAR(make_loss("dkd", {beta.str()})->forward(input).item<double>(),
              make_loss("kd")->forward(input).item<double>(), 1e-12);
}

/// Losses of values that 16 bits hold, near their largest, are those of the same values in fp64.
TEST(SixteenBits, LargeValuesAreFiniteAndNear) {
  const at::Tensor targets = torch::tensor(std::vector<int64_t>{1, 4, 0});
  for (const LossEntry& entry : loss_entries()) {
    if (entry.name == "crd") continue;
    const auto loss = make_loss(entry.name);
    const bool images = entry.name == "at" || entry.name == "tinybert_attention" || entry.name == "minilm";
    const std::vector<int64_t> shape = images ? std::vector<int64_t>{3, 2, 4, 4} : std::vector<int64_t>{3, 5};
    for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
      LossInput narrow{.targets = targets, .progress = 30}, wide = narrow;
      for (size_t i = 0; i < loss->places().size(); ++i) {
        const at::Tensor s = normal(shape, 10 + i, 3e4).clamp(-6e4, 6e4).to(type);
        const at::Tensor t = normal(shape, 20 + i, 3e4).clamp(-6e4, 6e4).to(type);
        narrow.student.push_back(s.detach().set_requires_grad(true));
        narrow.teacher.push_back(t);
        wide.student.push_back(s.to(at::kDouble).set_requires_grad(true));
        wide.teacher.push_back(t.to(at::kDouble));
      }
      const at::Tensor value = loss->forward(narrow), expected = loss->forward(wide);
      EXPECT_EQ(value.scalar_type(), at::kFloat) << entry.name;
      EXPECT_LE(relative_error(value, expected), 1e-5) << entry.name << ' ' << type;
      value.backward();
      expected.backward();
      for (size_t i = 0; i < narrow.student.size(); ++i) {
        const at::Tensor gradient = narrow.student[i].grad();
        EXPECT_EQ(gradient.scalar_type(), type) << entry.name;
        EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << entry.name << ' ' << type;
      }
    }
  }
}

TEST(MiniLmLoss, ItsGradientIsTheNumericOne) {
  for (const char* version : {"version=v1", "version=v2"}) {
    LossInput input;
    for (uint64_t i = 0; i < 3; ++i) {
      input.student.push_back(normal({2, 4, 6}, i).set_requires_grad(true));
      input.teacher.push_back(normal({2, 4, 9}, 10 + i));
    }
    const auto loss = make_loss("minilm", {version, "heads=3"});
    const auto value = [&] { return loss->forward(input); };
    const auto gradients = torch::autograd::grad({value()}, input.student);
    for (size_t i = 0; i < 3; ++i) EXPECT_LE(numeric_error(value, input.student[i], gradients[i]), 1e-8);
  }
}

TEST(RelationalLosses, TakeEqualSamplesAndZeros) {
  const at::Tensor teacher = normal({4, 5}, 6).to(at::kFloat);
  for (const at::Tensor& values : {at::ones({4, 3}), at::zeros({4, 3})}) {
    for (const char* name : {"sp", "rkd", "pkt", "cc"}) {
      const at::Tensor student = values.clone().set_requires_grad(true);
      make_loss(name)->forward({.student = {student}, .teacher = {teacher}}).backward();
      EXPECT_LE(student.grad().abs().max().item<double>(), 100) << name;
    }
  }
  const at::Tensor alone = at::ones({1, 3}).set_requires_grad(true);
  EXPECT_EQ(make_loss("rkd")->forward({.student = {alone}, .teacher = {at::ones({1, 2})}}).item<double>(), 0);
}

TEST(Losses, SayWhatTheyJoin) {
  for (const LossEntry& entry : loss_entries()) {
    const auto loss = make_loss(entry.name);
    EXPECT_EQ(loss->name(), entry.name);
    EXPECT_EQ(loss->same_width(), entry.name == "mse" || entry.name == "cosine") << entry.name;
    const std::vector<std::string> three = {"queries", "keys", "values"}, one = {"value"};
    EXPECT_EQ(loss->places(), entry.name == "minilm" ? three : one);
    loss->prepare({.student = {at::ones({2, 3})}, .teacher = {at::ones({2, 3})}}, 10);
    EXPECT_EQ(loss->parameters().empty(), entry.name != "crd") << entry.name;
  }
}

std::string refused(const std::string& name, const at::Tensor& student, const at::Tensor& teacher,
                    const at::Tensor& targets = {}, const std::vector<std::string>& options = {}) {
  const auto loss = make_loss(name, options);
  const size_t count = loss->places().size();
  const LossInput input{.student = std::vector<at::Tensor>(count, student),
                        .teacher = std::vector<at::Tensor>(count, teacher),
                        .targets = targets};
  return error_of([&] { loss->forward(input); });
}

TEST(Losses, RefuseOtherShapes) {
  const at::Tensor logits = at::ones({2, 3}), image = at::ones({2, 3, 4, 4});
  EXPECT_EQ(refused("kd", logits, at::ones({2, 4})),
            "[distill.kd] expected the teacher's shape [2, 4], got [2, 3]");
  EXPECT_EQ(refused("kd", image, image),
            "[distill.kd] expected values (N, C) or (N, T, C), got the shape [2, 3, 4, 4]");
  EXPECT_EQ(refused("kd", at::ones({3, 3}), logits),
            "[distill.kd] expected 3 samples in the teacher's value, got 2");
  EXPECT_TRUE(contains(refused("kd", at::ones({0, 3}), at::ones({0, 3})), "to hold samples"));
  EXPECT_TRUE(contains(refused("kd", logits.to(at::kLong), logits), "of a floating type, got Long"));
  EXPECT_TRUE(contains(refused("kd", {}, logits), "the student's value, got an undefined tensor"));
  for (const char* name : {"mutual", "dkd", "logits", "mse", "cosine", "soft_cross_entropy", "hard"})
    EXPECT_TRUE(contains(refused(name, logits, at::ones({2, 4})), std::string("[distill.") + name)) << name;
  EXPECT_TRUE(contains(refused("at", logits, logits), "(N, C, H, W)"));
  EXPECT_TRUE(contains(refused("tinybert_attention", logits, logits), "(N, heads, T, T)"));
  const at::Tensor batched = at::ones({4, 3, 3});  // of all heads, as at::bmm() has them
  const at::Tensor far =
      make_loss("tinybert_attention")->forward({.student = {batched}, .teacher = {batched * 3}});
  EXPECT_EQ(far.item<double>(), 4);
  EXPECT_TRUE(contains(refused("sp", at::ones({2}), at::ones({2})), "(N, ...)"));
  const at::Tensor fused = at::ones({2, 3, 4});
  EXPECT_TRUE(contains(refused("minilm", fused, fused), "or the option heads for fused ones"));
  EXPECT_TRUE(
      contains(refused("minilm", fused, fused, {}, {"heads=3"}), "a width that 3 heads divide, got 4"));
  EXPECT_TRUE(contains(refused("minilm", image, at::ones({2, 2, 4, 4})), "the option heads makes"));
  EXPECT_EQ(error_of([] {
              make_loss("minilm")->forward({.student = {at::ones({1, 1, 1, 1})}});
            }),
            "[distill.minilm] expected 3 of the student's values, got 1");
}

TEST(Losses, RefuseTargetsThatAreMissingOrWrong) {
  const at::Tensor logits = at::ones({2, 3});
  const auto dkd = [&](const at::Tensor& targets) { return refused("dkd", logits, logits, targets); };
  EXPECT_EQ(dkd({}), "[distill.dkd] expected targets, got none");
  EXPECT_EQ(dkd(torch::tensor(std::vector<int64_t>{0, 3})),
            "[distill.dkd] expected targets in [0, 2], got 0 to 3");
  EXPECT_EQ(dkd(torch::tensor(std::vector<int64_t>{0, 1, 2})),
            "[distill.dkd] expected targets int64 of the shape [2], got Long [3]");
  EXPECT_TRUE(contains(dkd(at::ones({2})), "got Float"));
  EXPECT_TRUE(contains(refused("dkd", at::ones({2, 1}), at::ones({2, 1}), at::zeros({2}, at::kLong)),
                       "2 classes or more"));
}

std::string refused_options(const std::string& name, const std::vector<std::string>& options) {
  return error_of([&] { make_loss(name, options); });
}

TEST(LossRegistry, RefusesNamesAndOptionsThatDoNotExist) {
  EXPECT_EQ(refused_options("KD", {}),
            "[distill.make_loss] expected one of at, cc, cosine, crd, dkd, hard, kd, logits, minilm, mse, "
            "mutual, pkt, "
            "rkd, rkd_angle, rkd_distance, soft_cross_entropy, sp, tinybert_attention, got 'KD'");
  EXPECT_EQ(refused_options("dkd", {"tau=4"}),
            "[distill.make_loss] expected the options T, alpha, beta, warmup of dkd, got 'tau'");
  EXPECT_EQ(refused_options("mse", {"T=4"}), "[distill.make_loss] expected no options of mse, got 'T'");
  EXPECT_EQ(refused_options("kd", {"4"}), "[distill.make_loss] expected an option key=value of kd, got '4'");
  EXPECT_EQ(refused_options("kd", {"T=4", "T=5"}), "[distill.make_loss] expected T of kd once, got it twice");
  EXPECT_EQ(refused_options("kd", {"T=0"}),
            "[distill.make_loss] expected a number > 0 and finite in 'T', got 0 of kd");
  for (const char* text : {"T=", "T=warm", "T=-1", "T=NaN", "T=1e999", "T=[4]", "T=true", "T=4x"})
    EXPECT_TRUE(contains(refused_options("kd", {text}), "'T'")) << text;
  EXPECT_TRUE(contains(refused_options("minilm", {"version=v3"}), "v1 or v2"));
  EXPECT_TRUE(contains(refused_options("cc", {"order=1.5"}), "a whole number"));
  EXPECT_TRUE(contains(refused_options("crd", {"T=0.01"}), ">= 0.02"));
  EXPECT_TRUE(contains(refused_options("crd", {"other_classes=1"}), "true or false"));
}

TEST(LossRegistry, ListsOptionsThatItTakes) {
  for (const LossEntry& entry : loss_entries()) {
    EXPECT_FALSE(entry.help.empty()) << entry.name;
    std::vector<std::string> options;
    std::istringstream list(entry.options);
    for (std::string one; std::getline(list >> std::ws, one, ',');) options.push_back(one);
    EXPECT_NO_THROW(make_loss(entry.name, options)) << entry.name;
  }
  const auto dkd = std::ranges::find(loss_entries(), std::string("dkd"), &LossEntry::name);
  EXPECT_EQ(dkd->options, "T=4.0, alpha=1.0, beta=8.0, warmup=20.0");
}

}  // namespace
}  // namespace ulp::distill::tests
