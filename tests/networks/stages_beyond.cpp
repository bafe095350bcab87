// The stages behind capture and engines: quantized training, cutting, distillation, files.
#include <cmath>

#include "lower/support.h"
#include "stage_support.h"
#include "stages.h"
#include "ulp/distill/distiller.h"
#include "ulp/distill/teacher.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/import_pt2.h"
#include "ulp/graph/module_copy.h"
#include "ulp/lower/lower.h"
#include "ulp/prune/structured/prune_channels.h"
#include "ulp/quant/qat/qat.h"

namespace ulp::test {

namespace {

constexpr double kSameDb = std::numeric_limits<double>::infinity();
constexpr double kQatDb = 25;  ///< a code that is rounded to the other side moves all behind it
constexpr double kCutDb = 90;  ///< sums of fewer products; tests/prune compare them in double
constexpr double kCutShare = 0.3;

/// One step of the optimizer; finite gradients that move a weight.
void take_step(torch::nn::Module& module, const at::Tensor& loss) {
  loss.backward();
  Tensors gradients{loss.detach()};
  const torch::NoGradGuard no_grad;
  bool moved = false;
  for (at::Tensor p : module.parameters()) {
    if (!p.grad().defined()) continue;
    gradients.push_back(p.grad().clone());
    const at::Tensor before = p.clone();
    p.sub_(p.grad() / (1 + p.grad().norm()), 1e-2);  // losses are of any size
    moved = moved || !p.equal(before);
    p.mutable_grad() = at::Tensor();
  }
  expect_finite(gradients);
  if (!moved) differs("no weight has moved");
}

/// Parameters are moved by a hundredth of their deviation, so that student and teacher differ.
void disturb(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (at::Tensor p : module.parameters())
    if (p.is_floating_point() && p.numel() > 1) p.add_(torch::randn_like(p), 0.01 * p.std().item<double>());
}

bool close(const at::Tensor& want, const at::Tensor& got) {
  if (!want.defined() || !got.defined()) return want.defined() == got.defined();
  return torch::allclose(want, got, 1e-4, 1e-7 + 1e-4 * want.abs().max().item<double>());
}

}  // namespace

void Subject::compare_graphs(graph::GraphModule& want, graph::GraphModule& got, double floor_db) {
  const torch::NoGradGuard no_grad;
  for (const int64_t batch : {int64_t{1}, kExample, kOther}) {
    const Tensors inputs = draw(batch, 90);
    const Tensors expected = want.forward_all(inputs), results = got.forward_all(inputs);
    if (expected.size() != results.size()) differs(results.size(), " results, expected ", expected.size());
    for (size_t i = 0; i < results.size(); ++i) {
      if (expected[i].scalar_type() != results[i].scalar_type())
        differs("result ", i, " is ", results[i].scalar_type(), ", expected ", expected[i].scalar_type());
      const double db = same_bits(expected[i], results[i]) ? kSameDb : ratio_db(expected[i], results[i]);
      if (!(db >= floor_db)) differs("result ", i, " at batch ", batch, ": ", db, " dB, expected ", floor_db);
    }
  }
}

void Subject::train_quantized() {
  const auto module = quant::prepare_qat(graph::copy_of(graph()), quant::Recipe::x86_int8());
  for (uint64_t step = 0; step < 2; ++step)
    take_step(*module, sum_of_squares(module->forward_all(draw(8, 100 + step))));
  const auto converted = quant::convert_qat(module);
  module->eval();
  compare_graphs(*converted, *module, kQatDb);
  if (lowers_) run_engine_of(*converted, Stage::engine_int8);
}

void Subject::cut_channels() {
  const prune::PrunedChannels pruned = prune::prune_channels(graph(), {.share = kCutShare});
  const auto zeroed = graph::copy_of(graph());
  prune::zero_units(*zeroed, pruned.groups, pruned.removals);
  zeroed->eval();
  pruned.module->eval();
  compare_graphs(*zeroed, *pruned.module, kCutDb);
  if (pruned.before.parameters <= pruned.after.parameters)
    differs("expected fewer parameters, got ", pruned.after.parameters);
  if (lowers_) run_engine_of(*pruned.module, Stage::engine_fp32);
}

void Subject::teach_student() {
  const auto student = graph::copy_of(graph());
  disturb(*student);
  auto recipe = distill::Recipe::from_terms({"mse"});
  recipe.labels = 0;
  const distill::Batch batch{.inputs = draw(kOther, 110)};
  distill::Distiller distiller({.student = student,
                                .teacher = distill::graph_teacher(graph(), distill::teacher_places(recipe)),
                                .recipe = recipe,
                                .example = batch});
  distiller.train();
  const auto twin = graph::copy_of(*student);  // before a step moves buffers
  torch::manual_seed(12);
  distiller.forward(batch);
  const at::Tensor loss = distiller.loss(batch);
  at::Tensor target;
  {
    const torch::NoGradGuard no_grad;
    target = graph().forward_all(batch.inputs)[0];
  }
  twin->train();
  torch::manual_seed(12);
  const at::Tensor want = at::mse_loss(twin->forward_all(batch.inputs)[0], target);
  if (!(want.item<double>() > 0) || !close(want.detach(), loss.detach()))
    differs("expected the loss ", want.item<double>(), ", got ", loss.item<double>());
  want.backward();
  loss.backward();
  const auto named = twin->named_parameters();
  for (const auto& item : student->named_parameters()) {
    if (!close(named[item.key()].grad(), item.value().grad()))
      differs("the gradient of ", item.key(), " differs");
  }
  twin->zero_grad();
  student->zero_grad();
  torch::manual_seed(12);
  distiller.forward(batch);
  take_step(*student, distiller.loss(batch));
}

void Subject::write_onnx() {
  const auto back = exchange::import_onnx(exchange::export_onnx(graph()), "model.onnx");
  back->eval();
  compare_graphs(graph(), *back, kF32Db);
}

void Subject::write_pt2() {
  const auto back = exchange::import_pt2(exchange::export_pt2(graph()), "model.pt2");
  back->eval();
  compare_graphs(graph(), *back, kSameDb);
}

}  // namespace ulp::test
