// What a student learns by: the sum of weighted losses, labels, schedules, precisions, and what is refused.
#include "ulp/distill/distiller.h"

#include "networks.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/distill/losses/registry.h"

namespace ulp::distill::tests {
namespace {

Recipe recipe(const std::vector<std::string>& terms) {
  return Recipe::from_terms(terms);
}

/// A student of 4 channels and a teacher of 8.
DistillerSetup setup(const Recipe& recipe, int64_t teacher_classes = 4) {
  return {.student = conv_net(4, 1),
          .teacher = graph_teacher(*conv_net(8, 2, teacher_classes), teacher_places(recipe)),
          .recipe = recipe,
          .example = image_batch(6, 3),
          .samples = 32,
          .batches = 8,
          .epoch_batches = 4};
}

double part(const Distiller& distiller, const std::string& name) {
  for (const TermValue& value : distiller.values()) {
    if (value.name == name) return value.value;
  }
  ADD_FAILURE() << "no part " << name;
  return 0;
}

at::Tensor teach(Distiller& distiller, const Batch& batch) {
  distiller.forward(batch);
  return distiller.loss(batch);
}

std::string error_of_setup(DistillerSetup setup) {
  return test::error_of([&] { Distiller made(std::move(setup)); });
}

TEST(Distiller, TheLossIsTheSumOfWeightedParts) {
  const Captured student = conv_net(4, 1), teacher = conv_net(8, 2);
  DistillerSetup given = setup(recipe({"kd:T=3,alpha=0.25", "at:1000@layer1", "sp:2@layer2"}));
  given.student = student;
  given.teacher = graph_teacher(*teacher, teacher_places(given.recipe));
  Distiller distiller(std::move(given));
  EXPECT_TRUE(distiller.adapters().empty());
  distiller.eval();  // no dropout
  student->eval();
  teacher->eval();
  const Batch batch = image_batch(5, 4);
  const at::Tensor loss = teach(distiller, batch);

  const std::vector<std::string> places = {"", "layer1", "layer2"};
  const auto own = TappedModel(*student, places).run(batch.inputs).taps;
  const auto theirs = TappedModel(*teacher, places).run(batch.inputs).taps;
  const at::Tensor labels = torch::nn::functional::cross_entropy(own[0], batch.targets);
  const auto value = [&](const char* name, const std::vector<std::string>& options, size_t i) {
    return make_loss(name, options)->forward({.student = {own[i]}, .teacher = {theirs[i]}});
  };
  const at::Tensor kd = value("kd", {"T=3"}, 0), at = value("at", {}, 1), sp = value("sp", {}, 2);
  const at::Tensor expected = 0.25 * labels + 0.75 * kd + 1000 * at + 2 * sp;
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-5 * expected.item<double>());
  const std::vector<TermValue> values = distiller.values();
  ASSERT_EQ(values.size(), 4U);
  EXPECT_EQ(values[0].name, "labels");
  EXPECT_EQ(values[0].weight, 0.25);
  EXPECT_EQ(values[1].weight, 0.75);
  EXPECT_NEAR(part(distiller, "labels"), labels.item<double>(), 1e-6);
  EXPECT_NEAR(part(distiller, "at"), at.item<double>(), 1e-7);

  loss.backward();
  const at::Tensor gradient = student->named_parameters()["layer1.conv.weight"].grad().clone();
  student->zero_grad();
  expected.backward();
  EXPECT_TRUE(
      torch::allclose(gradient, student->named_parameters()["layer1.conv.weight"].grad(), 1e-4, 1e-6));
  for (const at::Tensor& parameter : teacher->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(Distiller, ALossIsAnArithmeticFunctionOfAlpha) {
  std::vector<double> losses;
  for (const char* term : {"kd:T=4,alpha=0", "kd:T=4,alpha=0.5", "kd:T=4,alpha=1"}) {
    Distiller distiller(setup(recipe({term})));
    distiller.eval();
    losses.push_back(teach(distiller, image_batch(5, 4)).item<double>());
    // A part of weight 0 is not there.
    EXPECT_EQ(distiller.values().size(), std::string(term).ends_with("0.5") ? 2U : 1U) << term;
  }
  EXPECT_NEAR(losses[1], (losses[0] + losses[2]) / 2, 1e-6);
  EXPECT_GT(std::abs(losses[0] - losses[2]), 1e-3);
}

TEST(Distiller, RowsWithoutALabelTakeNoCrossEntropy) {
  Distiller distiller(setup(recipe({"kd"})));
  distiller.eval();
  Batch batch = image_batch(6, 4);
  teach(distiller, batch);
  const double kd = part(distiller, "kd");
  batch.targets.slice(0, 2).fill_(kUnlabelled);
  const at::Tensor logits = distiller.forward(batch);
  distiller.loss(batch);
  const at::Tensor labelled =
      torch::nn::functional::cross_entropy(logits.slice(0, 0, 2), batch.targets.slice(0, 0, 2));
  EXPECT_NEAR(part(distiller, "labels"), labelled.item<double>(), 1e-6);
  EXPECT_EQ(part(distiller, "kd"), kd);
  batch.targets.fill_(kUnlabelled);
  teach(distiller, batch);
  EXPECT_EQ(part(distiller, "labels"), 0);
}

/// Losses that look at classes take what has no label for what it is, too.
TEST(Distiller, LossesWithClassesLeaveOutWhatHasNone) {
  for (const char* term :
       {"dkd:warmup=0", "crd:0.8,dim=8,negatives=8@layer2", "crd:dim=8,positive=same_class"}) {
    DistillerSetup given = setup(recipe({term}));
    given.example.targets.slice(0, 3).fill_(kUnlabelled);
    const Batch batch = given.example;
    Distiller distiller(std::move(given));
    EXPECT_TRUE(teach(distiller, batch).isfinite().item<bool>()) << term;
  }
  const auto dkd = make_loss("dkd", {"warmup=0"});
  const at::Tensor student = torch::randn({4, 3}), teacher = torch::randn({4, 3});
  const at::Tensor classes = torch::tensor(std::vector<int64_t>{2, 1, kUnlabelled, kUnlabelled});
  const auto loss = [&](int64_t rows) {
    return dkd->forward({.student = {student.slice(0, 0, rows)},
                         .teacher = {teacher.slice(0, 0, rows)},
                         .targets = classes.slice(0, 0, rows)});
  };
  EXPECT_NEAR(loss(4).item<double>(), loss(2).item<double>(), 1e-6);
}

TEST(Distiller, WeightsAndTemperaturesFollowTheRun) {
  DistillerSetup given = setup(recipe({"kd:1>0,T=8>2", "at:0>10:0.5-1@layer1"}));
  given.recipe.labels = 0;
  Distiller distiller(std::move(given));
  const Batch batch = image_batch(5, 4);
  for (int64_t step = 0; step < 8; ++step) {
    const at::Tensor output = distiller.forward(batch);
    distiller.loss(batch);
    const double share = static_cast<double>(step) / 8;
    const auto values = distiller.values();
    ASSERT_EQ(values.size(), step > 4 ? 2U : 1U) << step;
    EXPECT_DOUBLE_EQ(values[0].weight, 1 - share);
    if (step > 4) {
      EXPECT_DOUBLE_EQ(values[1].weight, 10 * (share - 0.5) / 0.5);
    }
    const Captured teacher = conv_net(8, 2);
    teacher->eval();
    const std::string temperature = "T=" + WeightSchedule::constant(8 - 6 * share).text();
    const at::Tensor expected =
        make_loss("kd", {temperature})
            ->forward({.student = {output}, .teacher = {teacher->forward(batch.inputs)}});
    EXPECT_NEAR(values[0].value, expected.item<double>(), 1e-6) << step;
  }
  // At the end nothing is left of the first, and evaluation does not count.
  distiller.eval();
  teach(distiller, batch);
  ASSERT_EQ(distiller.values().size(), 1U);
  EXPECT_EQ(distiller.values()[0].weight, 10);
  EXPECT_EQ(distiller.named_buffers()["batches"].item<int64_t>(), 8);
}

TEST(Distiller, ARunOfNothingButWeightsOfZeroHasAGradient) {
  DistillerSetup given = setup(recipe({"kd:0>1:0.5-1,alpha=0"}));
  Distiller distiller(std::move(given));
  const at::Tensor loss = teach(distiller, image_batch(5, 4));
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
}

TEST(Distiller, AdaptersAreMadeWhereWidthsDifferAndTrain) {
  Distiller distiller(setup(recipe({"mse:100@layer1", "mse@layer2:input=layer1:input", "cosine@head=head"})));
  EXPECT_EQ(distiller.adapters(),
            (std::vector<std::string>{"adapter_0_mse.conv.weight", "adapter_0_mse.conv.bias",
                                      "adapter_1_mse.conv.weight", "adapter_1_mse.conv.bias"}));
  const auto parameters = distiller.named_parameters();
  EXPECT_EQ(parameters["adapter_0_mse.conv.weight"].sizes(), (std::vector<int64_t>{8, 4, 1, 1}));
  EXPECT_EQ(parameters["adapter_1_mse.conv.weight"].sizes(), (std::vector<int64_t>{1, 4, 1, 1}));
  EXPECT_TRUE(parameters["adapter_0_mse.conv.weight"].requires_grad());
  torch::optim::SGD optimizer(distiller.parameters(), 0.01);
  const Batch batch = image_batch(6, 4);
  std::vector<double> values;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    teach(distiller, batch).backward();
    optimizer.step();
    values.push_back(distiller.values()[1].value);
  }
  EXPECT_LT(values.back(), 0.9 * values.front());
}

TEST(Distiller, WorksUnderAutocastAndAScaler) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    Distiller distiller(setup(
        recipe({"kd:T=4,alpha=0.1", "mse:10@layer1", "crd:0.8,dim=8,negatives=8@layer2", "at:100@layer2"})));
    torch::optim::SGD optimizer(distiller.parameters(), 0.02);
    amp::GradScaler scaler({.init_scale = 128});
    const Batch batch = image_batch(6, 4);
    double first = 0, last = 0;
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      {
        const amp::Autocast autocast(torch::kCPU, type);
        EXPECT_EQ(distiller.forward(batch).scalar_type(), type);
      }
      const at::Tensor loss = distiller.loss(batch);
      EXPECT_EQ(loss.scalar_type(), at::kFloat);
      scaler.scale(loss).backward();
      EXPECT_EQ(scaler.step(optimizer), amp::StepResult::stepped);
      scaler.update();
      (step == 0 ? first : last) = loss.item<double>();
    }
    EXPECT_LT(last, first) << type;
  }
}

/// Adapters and losses stay in fp32 beside a student of 16-bit parameters.
TEST(Distiller, WorksBesideParametersOf16Bits) {
  for (const char* name : {"O2:bf16", "O3:bf16"}) {
    Distiller distiller(setup(
        recipe({"kd:T=4,alpha=0.1", "mse:10@layer1", "crd:0.8,dim=8,negatives=8@layer2", "at:100@layer2"})));
    const amp::Precision& precision = amp::find_precision(name);
    amp::apply_precision(distiller, precision);
    const auto state = distiller.named_parameters();
    EXPECT_EQ(state["student.layer1.conv.weight"].scalar_type(), at::kBFloat16);
    EXPECT_EQ(state["student.layer1.norm.weight"].scalar_type(),
              precision.batch_norm_fp32 ? at::kFloat : at::kBFloat16);
    EXPECT_EQ(state["adapter_1_mse.conv.weight"].scalar_type(), at::kFloat);
    EXPECT_EQ(distiller.named_buffers()["loss_2_crd.z"].scalar_type(), at::kFloat);
    Batch batch = image_batch(6, 4);
    batch.inputs[0] = amp::cast_input(precision, batch.inputs[0]);
    teach(distiller, batch).backward();
    for (const auto& parameter : distiller.named_parameters())
      EXPECT_TRUE(parameter.value().grad().defined()) << name << ' ' << parameter.key();
  }
}

TEST(Distiller, NoiseIsOnTheStudentsInputsWhileItTrains) {
  torch::manual_seed(5);
  Transformer student(Attention::fused);
  const Captured captured = capture(student, {tokens()});
  const Batch batch = {.inputs = {tokens(4, 9)}, .targets = torch::zeros({4}, torch::kLong)};
  const at::Tensor x = batch.inputs[0].clone();
  Distiller distiller({.student = captured,
                       .teacher = graph_teacher(*captured, {""}),
                       .recipe = recipe({"kd"}),
                       .example = batch,
                       .input_noise = 0.5});
  const auto forward = [&](bool training) {
    distiller.train(training);
    torch::manual_seed(1);
    return distiller.forward(batch);
  };
  EXPECT_TRUE(same(forward(false), student(x)));
  torch::manual_seed(1);
  const at::Tensor noise = at::randn_like(x) * 0.5;
  EXPECT_TRUE(same(forward(true), student(x + noise)));
  // The teacher saw none.
  distiller.loss(batch);
  const at::Tensor kd = make_loss("kd")->forward({.student = {student(x + noise)}, .teacher = {student(x)}});
  EXPECT_NEAR(part(distiller, "kd"), kd.item<double>(), 1e-6);
  EXPECT_TRUE(same(batch.inputs[0], x));
}

TEST(Distiller, LabelsAloneNeedNoTeacher) {
  Distiller distiller(
      {.student = conv_net(4, 1), .recipe = {.terms = {}, .labels = 1}, .example = image_batch(6, 3)});
  const Batch batch = image_batch(5, 4);
  const at::Tensor logits = distiller.forward(batch);
  EXPECT_NEAR(distiller.loss(batch).item<double>(),
              torch::nn::functional::cross_entropy(logits, batch.targets).item<double>(), 1e-6);
}

TEST(Distiller, WhatCannotBeLearnedIsRefused) {
  DistillerSetup none = setup(recipe({"kd"}));
  none.teacher = nullptr;
  EXPECT_SAYS(error_of_setup(none), "expected a teacher for the recipe's losses, got none");
  DistillerSetup student = setup(recipe({"kd"}));
  student.student = nullptr;
  EXPECT_SAYS(error_of_setup(student), "expected a student, got null");
  DistillerSetup fewer = setup(recipe({"kd", "at@layer1"}));
  fewer.teacher = graph_teacher(*conv_net(8, 2), {""});
  EXPECT_SAYS(error_of_setup(fewer), "expected a teacher with 2 values, got one with 1");
  EXPECT_SAYS(error_of_setup(setup(recipe({"kd"}), 5)), "kd at output: ");
  EXPECT_SAYS(error_of_setup(setup(recipe({"kd"}), 5)), "expected the teacher's shape [6, 5], got [6, 4]");
  EXPECT_SAYS(error_of_setup(setup(recipe({"at@layer9=layer1"}))), "got 'layer9'");
  DistillerSetup unlabelled = setup(recipe({"kd"}));
  unlabelled.example.targets = at::Tensor();
  EXPECT_SAYS(error_of_setup(unlabelled), "expected logits (..., classes) for targets (...)");
  DistillerSetup unnumbered = setup(recipe({"crd@layer2"}));
  unnumbered.example.samples = at::Tensor();
  EXPECT_SAYS(error_of_setup(unnumbered), "crd at layer2: ");
  EXPECT_SAYS(error_of_setup(unnumbered), "expected numbers of samples, got none");
  const std::string shapes = error_of_setup(setup(recipe({"mse@layer1=head"})));
  EXPECT_SAYS(shapes, "layer1 and head");
  EXPECT_SAYS(shapes, "got shapes [6, 4, 8, 8] of the student and [6, 4] of the teacher");
  Distiller distiller(setup(recipe({"kd"})));
  EXPECT_ERROR(distiller.loss(image_batch(2, 1)), "expected forward() before, got none");
}

/// Losses between attentions are given queries, keys and values.
TEST(Distiller, RelationsOfAttentionsAreComparedAtAnyWidth) {
  torch::manual_seed(5);
  Transformer teacher(Attention::written), student(Attention::fused);
  const Recipe given = recipe({"minilm@layers.1.attention", "tinybert_attention@layers.0.attention:scores"});
  EXPECT_EQ(teacher_places(given),
            (std::vector<std::string>{"layers.1.attention:queries", "layers.1.attention:keys",
                                      "layers.1.attention:values", "layers.0.attention:scores"}));
  const Captured taught = capture(student, {tokens()}), teaches = capture(teacher, {tokens()});
  Distiller distiller({.student = taught,
                       .teacher = graph_teacher(*teaches, teacher_places(given)),
                       .recipe = given,
                       .example = {.inputs = {tokens()}, .targets = torch::zeros({3}, torch::kLong)}});
  const Batch batch = {.inputs = {tokens(6, 8)}, .targets = torch::zeros({6}, torch::kLong)};
  torch::optim::SGD optimizer(distiller.parameters(), 1.0);
  double first = 0, last = 0;
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    teach(distiller, batch).backward();
    optimizer.step();
    (step == 0 ? first : last) = part(distiller, "tinybert_attention") + part(distiller, "minilm");
  }
  EXPECT_LT(last, 0.9 * first);
}

}  // namespace
}  // namespace ulp::distill::tests
