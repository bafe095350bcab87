// Captured models on a GPU: their bits, checkpoints, quantization-aware training, pruning, distillation.
#include "cuda/support.h"
#include "memory/plans.h"
#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/distill/distiller.h"
#include "ulp/distill/teacher.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/libtorch/bit_mask.h"
#include "ulp/memory/checkpoint/checkpoint.h"
#include "ulp/memory/checkpoint/function.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/registry.h"
#include "ulp/prune/masks/hold_masks.h"
#include "ulp/prune/masks/masks.h"
#include "ulp/prune/pruner.h"
#include "ulp/quant/qat/qat.h"

namespace {

using ulp::graph::GraphModule;
using ulp::test::bright_corners;
using ulp::test::Cuda;
using ulp::test::distance;
using ulp::test::SmallNet;

std::shared_ptr<ulp::models::TextModel> tiny_gpt2() {
  ulp::models::Gpt2Config config = ulp::models::Gpt2Config::tiny();
  config.attention_dropout = config.dropout = 0.1;
  return ulp::models::make_gpt2(config);
}

TEST_F(Cuda, CapturedModelsGiveTheModulesBits) {
  const auto model = ulp::models::make_model("resnet20");
  const auto graph = ulp::capture(model, {torch::randn({2, 3, 32, 32})});
  model->to(at::kCUDA);
  graph->to(at::kCUDA);
  const at::Tensor x = torch::randn({4, 3, 32, 32}, at::kCUDA);
  for (const bool train : {true, false}) {
    model->train(train);
    graph->train(train);
    EXPECT_TRUE(torch::equal(graph->forward(x), model->forward(x))) << train;
  }
  const auto text = tiny_gpt2();
  text->eval();
  const at::Tensor tokens = torch::randint(1, 200, {2, 12});
  const auto text_graph = ulp::capture(text, {tokens});
  text->to(at::kCUDA);
  text_graph->to(at::kCUDA);
  text_graph->eval();
  EXPECT_TRUE(torch::equal(text_graph->forward(tokens.to(at::kCUDA)), text->forward(tokens.to(at::kCUDA))));
}

TEST_F(Cuda, ModelsOnTheGpuAreCapturedThere) {
  SmallNet net;
  net->to(at::kCUDA);
  net->eval();
  const auto [x, classes] = bright_corners();
  const auto graph = ulp::capture(*net, {x.slice(0, 0, 2)});
  graph->eval();
  EXPECT_TRUE(torch::equal(graph->forward(x), net(x)));
}

TEST_F(Cuda, CheckpointsGiveTheBits) {
  const auto resnet = ulp::models::make_model("resnet20");
  const auto images = ulp::capture(resnet, {torch::randn({2, 3, 32, 32})});
  images->to(at::kCUDA);
  images->train();
  ulp::test::expect_the_same_step(*images, {torch::randn({4, 3, 32, 32}, at::kCUDA)}, "resnet20");
  const auto text = tiny_gpt2();
  text->train();
  const auto tokens = torch::randint(1, 200, {3, 12});
  const auto graph = ulp::capture(text, {tokens});
  graph->to(at::kCUDA);
  graph->train();
  ulp::test::expect_the_same_step(*graph, {tokens.to(at::kCUDA)}, "gpt2");
}

TEST_F(Cuda, FunctionsAreCheckpointedWithTheirDropout) {
  torch::nn::Linear wide(16, 64), narrow(64, 16);
  wide->to(at::kCUDA);
  narrow->to(at::kCUDA);
  const auto block = [&](const at::Tensor& x) {
    return narrow(torch::dropout(torch::gelu(wide(x)), 0.3, true));
  };
  const auto gradient = [&](bool checkpointed) {
    torch::manual_seed(3);
    const at::Tensor x = torch::ones({8, 16}, at::TensorOptions(at::kCUDA)).requires_grad_();
    (checkpointed ? ulp::memory::checkpoint(block, x) : block(x)).square().sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(torch::equal(gradient(true), gradient(false)));
}

TEST_F(Cuda, KeptValuesWaitOnTheHostAndInFilesAsTheyAre) {
  const auto resnet = ulp::models::make_model("resnet20");
  const auto model = ulp::capture(resnet, {torch::randn({2, 3, 32, 32})});
  model->to(at::kCUDA);
  model->train();
  const std::vector<at::Tensor> inputs = {torch::randn({8, 3, 32, 32}, at::kCUDA)};
  const auto expected = ulp::test::step(*model, inputs);
  for (const auto place : {ulp::memory::StorageLocation::host, ulp::memory::StorageLocation::file}) {
    ulp::memory::CheckpointPlan plan = ulp::memory::plan_every(model->graph(), 8);
    plan.saved.place = place;
    plan.saved.masks = true;
    ulp::memory::checkpoint(*model, plan);
    ulp::test::expect_same(expected, ulp::test::step(*model, inputs), std::string(ulp::enum_name(place)));
  }
  ulp::memory::CheckpointPlan compressed = ulp::memory::plan_every(model->graph(), 8);
  compressed.saved.format = ulp::memory::SavedFormat::int8;
  ulp::memory::checkpoint(*model, compressed);
  const auto near = ulp::test::step(*model, inputs);
  for (size_t i = 0; i < near.size(); ++i) {
    if (!near[i].first.starts_with("gradient")) continue;
    EXPECT_LT(distance(expected[i].second, near[i].second), 0.2) << near[i].first;
  }
}

TEST_F(Cuda, QuantizationAwareTrainingConvertsAsOnTheProcessor) {
  SmallNet net;
  const auto [x, classes] = bright_corners();
  const auto captured = ulp::capture(*net, {x.cpu()});
  const auto qat = ulp::quant::prepare_qat(captured, ulp::quant::Recipe::x86_int8());
  qat->to(at::kCUDA);
  qat->train();
  torch::optim::Adam optimizer(qat->parameters(), torch::optim::AdamOptions(0.01));
  double first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = torch::cross_entropy_loss(qat->forward(x), classes);
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, first / 2);
  qat->eval();
  const at::Tensor trained = qat->forward(x);
  qat->to(at::kCPU);
  const auto int8 = ulp::quant::convert_qat(qat);
  int8->eval();
  EXPECT_GT(
      (int8->forward(x.cpu()).argmax(1) == trained.cpu().argmax(1)).to(at::kFloat).mean().item<double>(),
      0.95);
}

TEST_F(Cuda, PrunedWeightsStayPruned) {
  SmallNet net;
  const auto [x, classes] = bright_corners();
  const auto graph = ulp::capture(*net, {x.cpu()});
  graph->to(at::kCUDA);
  graph->train();
  ulp::prune::Recipe recipe;
  recipe.amount = ulp::prune::Amount::share(0.5, ulp::prune::AmountOf::all);
  EXPECT_NEAR(ulp::prune::prune(*graph, recipe).sparsity(), 0.5, 0.01);
  ulp::amp::FusedOptimizer optimizer({ulp::amp::FusedGroup{graph->parameters(), ulp::amp::AdamWRule{}}}, 1,
                                     {.to_host = true});
  ulp::prune::hold_masks(optimizer, *graph, ulp::prune::masks(graph->graph()));
  const at::Tensor before = net->middle->weight.detach().cpu().clone();
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    torch::cross_entropy_loss(graph->forward(x), classes).backward();
    optimizer.step();
  }
  const at::Tensor after = net->middle->weight.detach().cpu();
  for (const ulp::prune::ParameterMask& mask : ulp::prune::masks(graph->graph())) {
    if (mask.parameter != "middle.weight") continue;
    const at::Tensor kept = ulp::libtorch::unpack_mask(mask.bits.cpu(), after.sizes());
    EXPECT_TRUE(after.masked_select(~kept).equal(before.masked_select(~kept)));
    EXPECT_FALSE(after.masked_select(kept).equal(before.masked_select(kept)));
  }
}

TEST_F(Cuda, AStudentLearnsFromItsTeacher) {
  SmallNet student, teacher;
  const auto [x, classes] = bright_corners();
  const auto captured_student = ulp::capture(*student, {x.cpu()}),
             captured_teacher = ulp::capture(*teacher, {x.cpu()});
  captured_student->to(at::kCUDA);
  captured_teacher->to(at::kCUDA);
  const auto recipe = ulp::distill::Recipe::from_terms({"kd:T=3,alpha=0.5", "at:10@conv"});
  const ulp::distill::Batch batch{.inputs = {x}, .targets = classes};
  ulp::distill::Distiller distiller(
      {.student = captured_student,
       .teacher = ulp::distill::graph_teacher(*captured_teacher, ulp::distill::teacher_places(recipe)),
       .recipe = recipe,
       .example = batch,
       .samples = 64,
       .batches = 4,
       .epoch_batches = 4});
  distiller.train();
  torch::optim::Adam optimizer(distiller.parameters(), torch::optim::AdamOptions(0.01));
  double first = 0, last = 0;
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    distiller.forward(batch);
    const at::Tensor loss = distiller.loss(batch);
    loss.backward();
    optimizer.step();
    last = loss.item<double>();
    if (step == 0) first = last;
  }
  EXPECT_LT(last, first);
}

}  // namespace
