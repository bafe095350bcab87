// Teachers: captured models, engines, and several of them as one.
#include "ulp/distill/teacher.h"

#include "networks.h"
#include "temporary_folder.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/distill/distiller.h"
#include "ulp/lower/lower.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::distill::tests {
namespace {

at::Tensor images(int64_t count = 5) {
  return image_batch(count, 4).inputs[0];
}

at::Tensor first(const std::shared_ptr<Teacher>& teacher, const at::Tensor& x) {
  return teacher->values({.inputs = {x}}).at(0);
}

TEST(GraphTeacher, RunsInEvalWithoutGradientAndLeavesTheModel) {
  const Captured model = conv_net(4, 1), before = conv_net(4, 1);
  const auto teacher = graph_teacher(*model, {"", "layer1"});
  EXPECT_TRUE(model->is_training());
  const auto values = teacher->values({.inputs = {images()}});
  ASSERT_EQ(values.size(), 2U);
  EXPECT_EQ(teacher->count(), 2U);
  EXPECT_EQ(teacher->description(), "graph in fp32");
  for (const at::Tensor& value : values) EXPECT_FALSE(value.requires_grad());
  before->eval();
  EXPECT_TRUE(same(values[0], before->forward(images())));
  for (const auto& buffer : model->named_buffers())
    EXPECT_TRUE(same(buffer.value(), before->named_buffers()[buffer.key()])) << buffer.key();
}

/// What the model learns afterwards is nothing to its teacher: born-again networks start from it.
TEST(GraphTeacher, KeepsTheTensorsThatTheModelHad) {
  const Captured model = conv_net(4, 1);
  const auto teacher = graph_teacher(*model, {""});
  const at::Tensor before = first(teacher, images());
  {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.zero_();
  }
  EXPECT_TRUE(same(first(teacher, images()), before));
}

TEST(GraphTeacher, ComputesInItsOwnPrecision) {
  const Captured model = conv_net(4, 1);
  model->eval();
  const auto wide = graph_teacher(*model, {""}), narrow = graph_teacher(*model, {""}, "bf16");
  EXPECT_EQ(narrow->description(), "graph in bf16");
  const at::Tensor expected = model->forward(images());
  const at::Tensor got = first(narrow, images());
  EXPECT_EQ(got.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(torch::allclose(got.to(at::kFloat), expected, 0.05, 0.02));
  {
    const amp::Autocast around(torch::kCPU, torch::kBFloat16);  // the student's
    EXPECT_TRUE(same(first(wide, images()), expected.detach()));
    EXPECT_TRUE(same(first(wide, images().to(torch::kBFloat16)).to(torch::kFloat),
                     first(wide, images().to(torch::kBFloat16).to(torch::kFloat))));
  }
  EXPECT_ERROR(graph_teacher(*model, {""}, "O2:bf16"),
               "expected a precision with fp32 parameters, got O2:bf16");
  EXPECT_ERROR(graph_teacher(*model, {"layer9"}), "got 'layer9'");
}

std::shared_ptr<runtime::Engine> engine_of(const Captured& model) {
  const test::TemporaryFolder folder;
  lower(*model).save(folder / "teacher.ulp");
  return std::make_shared<runtime::Engine>(folder / "teacher.ulp", runtime::EngineOptions{.threads = 1});
}

TEST(EngineTeacher, SaysWhatItsNetworkSays) {
  const Captured model = conv_net(4, 1);
  model->eval();
  const auto teacher = engine_teacher(engine_of(model), {"", "output", "output:0"});
  const auto values = teacher->values({.inputs = {images()}});
  ASSERT_EQ(values.size(), 3U);
  EXPECT_EQ(teacher->count(), 3U);
  for (const at::Tensor& value : values) {
    EXPECT_TRUE(torch::allclose(value, model->forward(images()), 1e-4, 1e-5));
    EXPECT_FALSE(value.requires_grad());
  }
  const amp::Autocast around(torch::kCPU, torch::kBFloat16);
  EXPECT_TRUE(same(first(teacher, images(3)), first(teacher, images(3).clone())));
  EXPECT_ERROR(engine_teacher(engine_of(model), {"layer1"}), "got 'layer1'; an engine has no values inside");
  EXPECT_ERROR(engine_teacher(engine_of(model), {"output:1"}), "got 'output:1'");
  EXPECT_ERROR(engine_teacher(nullptr, {""}), "expected an engine, got null");
}

TEST(EngineTeacher, TeachesAStudent) {
  const Recipe recipe = Recipe::from_terms({"kd:T=4,alpha=0.1"});
  const Batch batch = image_batch(6, 3);
  Distiller distiller({.student = conv_net(4, 2),
                       .teacher = engine_teacher(engine_of(conv_net(8, 1)), teacher_places(recipe)),
                       .recipe = recipe,
                       .example = batch});
  torch::optim::SGD optimizer(distiller.parameters(), 0.1);
  double first = 0, last = 0;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    distiller.forward(batch);
    const at::Tensor loss = distiller.loss(batch);
    loss.backward();
    optimizer.step();
    (step == 0 ? first : last) = loss.item<double>();
  }
  EXPECT_LT(last, first);
  DistillerSetup other = {.student = conv_net(4, 2),
                          .teacher = engine_teacher(engine_of(conv_net(8, 1, 5)), {""}),
                          .recipe = recipe,
                          .example = batch};
  EXPECT_ERROR(Distiller{other}, "expected the teacher's shape [6, 5], got [6, 4]");
}

TEST(Ensemble, AveragesProbabilitiesByWeight) {
  const Captured a = conv_net(4, 1), b = conv_net(8, 2), c = conv_net(2, 3);
  std::vector<std::shared_ptr<Teacher>> members;
  std::vector<at::Tensor> logits;
  for (const Captured& one : {a, b, c}) {
    members.push_back(graph_teacher(*one, {""}));
    logits.push_back(first(members.back(), images()));
  }
  const std::vector<double> weights = {1, 3, 0};
  for (const double t : {1.0, 4.0}) {
    const auto softened = [&](const at::Tensor& z) { return (z / t).softmax(1); };
    const at::Tensor mean = (softened(logits[0]) + softened(logits[1]) + softened(logits[2])) / 3;
    EXPECT_TRUE(torch::allclose(softened(first(ensemble(members, {}, t), images())), mean, 1e-5, 1e-6));
    const at::Tensor weighted = (softened(logits[0]) + 3 * softened(logits[1])) / 4;
    EXPECT_TRUE(
        torch::allclose(softened(first(ensemble(members, weights, t), images())), weighted, 1e-5, 1e-6));
  }
  EXPECT_EQ(ensemble(members)->count(), 1U);
  EXPECT_EQ(ensemble(members)->description(), "ensemble of 3");
  // One member is itself, up to what softmax does not see.
  const at::Tensor one = first(ensemble({members[0]}), images());
  EXPECT_TRUE(torch::allclose(one.softmax(1), logits[0].softmax(1), 1e-6, 1e-7));
}

TEST(Ensemble, WhatCannotBeAveragedIsRefused) {
  const auto four = graph_teacher(*conv_net(4, 1), {""}), five = graph_teacher(*conv_net(4, 1, 5), {""});
  EXPECT_ERROR(first(ensemble({four, five}), images()),
               "expected members with logits of shape [5, 4], got [5, 5] of member 1");
  EXPECT_ERROR(ensemble({}), "expected at least one member, got none");
  EXPECT_ERROR(ensemble({four, nullptr}), "expected members with one value each");
  EXPECT_ERROR(ensemble({graph_teacher(*conv_net(4, 1), {"", "layer1"})}),
               "expected members with one value each");
  EXPECT_ERROR(ensemble({four, four}, {1}), "expected 2 weights, got 1");
  EXPECT_ERROR(ensemble({four, four}, {1, -1}), "expected weights >= 0, got -1");
  EXPECT_ERROR(ensemble({four, four}, {0, 0}), "expected weights with a sum > 0, got 0");
  EXPECT_ERROR(ensemble({four, four}, {}, 0), "expected a temperature > 0, got 0");
}

}  // namespace
}  // namespace ulp::distill::tests
