// The stages of capture, training, quantization and engines.
#include "stages.h"

#include <algorithm>

#include "lower/support.h"
#include "stage_support.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/lower/partitioned_model.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/quant/weights/weights.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {

Subject::Subject(const Network& network) : network_(network) {
  torch::manual_seed(1);
  model_ = network.make();
  model_.root->train();
  const torch::NoGradGuard no_grad;
  for (uint64_t i = 0; i < 3; ++i) model_.forward(draw(kExample, i));  // running statistics of some data
}

std::vector<torch::Tensor> Subject::draw(int64_t batch, uint64_t seed) const {
  torch::manual_seed(100 + seed);
  return network_.inputs(batch);
}

StageResult Subject::run(Stage stage) {
  try {
    attempt(stage);
    return {};
  } catch (const std::exception& error) {
    const std::string text = error.what();
    const bool nothing = contains(text, "expected at least one") && contains(text, "got none");
    return {nothing ? StageResult::Kind::has_no_such_layer : StageResult::Kind::fails, text};
  }
}

graph::GraphModule& Subject::graph() {
  if (!capture_error_.empty()) throw std::runtime_error(capture_error_);
  try {
    if (!graph_) graph_ = graph::capture(*model_.root, model_.forward, draw(kExample, 0));
  } catch (const std::exception& error) {
    capture_error_ = first_line(error.what());
    throw;
  }
  graph_->eval();
  return *graph_;
}

std::shared_ptr<graph::GraphModule> Subject::quantized() {
  if (!quantize_error_.empty()) throw std::runtime_error(quantize_error_);
  try {
    if (!quantized_) {
      graph();
      const auto prepared = quant::prepare(graph_, quant::Recipe::x86_int8());
      const torch::NoGradGuard no_grad;
      for (uint64_t i = 0; i < 4; ++i) prepared->run(draw(8, 10 + i));
      quantized_ = quant::convert(prepared);
    }
  } catch (const std::exception& error) {
    quantize_error_ = first_line(error.what());
    throw;
  }
  return quantized_;
}

void Subject::attempt(Stage stage) {
  graph();
  switch (stage) {
    case Stage::captured:
      return compare_with_model(false);
    case Stage::trains:
      return compare_with_model(true);
    case Stage::bf16_training:
      return train_in_bf16();
    case Stage::static_int8:
      return expect_near(*quantized());
    case Stage::dynamic:
      return expect_near(*quant::quantize_dynamic(graph_));
    case Stage::weight_only:
      return expect_near(*quant::quantize_weights(graph_));
    case Stage::engine_fp32:
      run_engine_of(*graph_, stage);
      lowers_ = true;
      return;
    case Stage::engine_bf16:
      return run_engine_of(*graph_, stage);
    case Stage::engine_int8:
      return run_engine_of(*quantized(), stage);
    case Stage::pieces_fp32:
      return run_pieces_of(*graph_, kF32Db);
    case Stage::pieces_int8:
      return run_pieces_of(*quantized(), kInt8Db);
    case Stage::qat:
      return train_quantized();
    case Stage::cut:
      return cut_channels();
    case Stage::distilled:
      return teach_student();
    case Stage::onnx:
      return write_onnx();
    case Stage::pt2:
      return write_pt2();
  }
}

void Subject::compare_with_model(bool training) {
  const Named tensors = named(*model_.root);
  const Forward in_mode = [&](const Tensors& inputs) {
    graph_->train(training);
    return graph_->run(inputs);
  };
  for (const int64_t batch : {kExample, kOther}) {
    const Tensors inputs = draw(batch, 50);
    model_.root->train(training);
    const Outcome want = outcome(model_.forward, tensors, inputs, training, false);
    const Outcome got = outcome(in_mode, tensors, inputs, training, false);
    expect_same_bits(want.outputs, got.outputs, "result");
    expect_same_gradients(want.gradients, got.gradients, network_.gradients_within);
    expect_same_bits(want.buffers, got.buffers, "buffer");
  }
}

void Subject::train_in_bf16() {
  graph::GraphModule& module = graph();
  Tensors kept;
  for (const at::Tensor& p : module.parameters()) kept.push_back(p.detach().clone());
  torch::optim::AdamW optimizer(module.parameters(), torch::optim::AdamWOptions(1e-3));
  module.train();
  Tensors results;
  {
    const amp::Autocast guard(torch::kCPU, torch::kBFloat16);
    results = module.forward_all(draw(kExample, 60));
  }
  const at::Tensor loss = sum_of_squares(results);
  optimizer.zero_grad();
  loss.backward();
  Tensors gradients{loss.detach()};
  bool moved = false;
  for (const at::Tensor& p : module.parameters())
    if (p.grad().defined()) gradients.push_back(p.grad());
  optimizer.step();
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < kept.size(); ++i) {
    moved = moved || !module.parameters()[i].equal(kept[i]);
    module.parameters()[i].copy_(kept[i]);
    module.parameters()[i].mutable_grad() = at::Tensor();
  }
  expect_finite(gradients);
  if (!moved) differs("no weight has moved");
}

void Subject::expect_near(graph::GraphModule& approximation) {
  const torch::NoGradGuard no_grad;
  for (const int64_t batch : {kExample, kOther}) {
    const Tensors inputs = draw(batch, 70);
    const Tensors exact = graph().forward_all(inputs), got = approximation.forward_all(inputs);
    for (size_t i = 0; i < exact.size(); ++i) {
      const double db = ratio_db(exact[i], got.at(i));
      if (!(db >= kQuantizedDb))
        differs("result ", i, " is ", db, " dB from the graph's, expected ", kQuantizedDb);
    }
  }
}

namespace {

/// Compares whole numbers, of which a share may be others, and leaves the other results of the samples
/// without such.
void leave_untied(Tensors& expected, Tensors& got, double share) {
  at::Tensor untied = torch::ones({expected.at(0).size(0)}, torch::kBool);
  Tensors wanted_rest, rest;
  for (size_t i = 0; i < got.size(); ++i) {
    if (expected[i].sizes() != got[i].sizes())
      differs("expected sizes ", expected[i].sizes(), ", got ", got[i].sizes());
    if (expected[i].is_floating_point()) {
      wanted_rest.push_back(expected[i]);
      rest.push_back(got[i]);
      continue;
    }
    const at::Tensor other = (expected[i] != got[i]).flatten(1);
    const double others = other.to(at::kDouble).mean().item<double>();
    if (others > share) differs("result ", i, ": ", others, " of its numbers are others, expected ", share);
    untied &= other.any(1).logical_not();
  }
  for (Tensors* list : {&wanted_rest, &rest})
    for (at::Tensor& result : *list) result = result.index({untied});
  expected = wanted_rest;
  got = rest;
}

}  // namespace

void Subject::run_engine_of(graph::GraphModule& module, Stage stage) {
  const torch::NoGradGuard no_grad;
  const bool bf16 = stage == Stage::engine_bf16, exactly = stage == Stage::engine_fp32;
  using Precision = LowerOptions::Precision;
  const runtime::Plan plan = lower(module, {.precision = bf16 ? Precision::bf16 : Precision::f32});
  runtime::Engine engine(plan, {.threads = 2});
  const bool with_ties = bf16 && network_.near_ties > 0;
  int64_t untied = 0;
  for (const int64_t batch : {int64_t{1}, kExample, kOther}) {
    const Tensors inputs = draw(batch, 80);
    Tensors expected = module.forward_all(inputs), got = run_engine_all(engine, inputs);
    if (expected.size() != got.size()) differs(got.size(), " results, expected ", expected.size());
    if (with_ties) {
      leave_untied(expected, got, network_.near_ties);
      untied += expected.at(0).size(0);
      if (expected[0].size(0) == 0) continue;
    }
    for (size_t i = 0; i < got.size(); ++i) {
      const double db = ratio_db(expected[i], got[i]), floor = bf16 ? kBF16Db : kInt8Db;
      const double error = relative_error(got[i], expected[i]),
                   limit = std::max(kF32Least, rounding_bound(plan, kF32, kF32));
      if (exactly ? error <= limit || got[i].equal(expected[i]) : db >= floor) continue;
      differs("result ", i, " at batch ", batch, ": relative error ", error, " (rounding: ", limit, "), ", db,
              " dB");
    }
  }
  if (with_ties && untied == 0) differs("expected a sample without a near tie, got none");
}

void Subject::run_pieces_of(graph::GraphModule& module, double floor_db) {
  const torch::NoGradGuard no_grad;
  PartitionedModel pieces = lower_partitioned(module);
  for (const int64_t batch : {int64_t{1}, kExample, kOther}) {
    const Tensors inputs = draw(batch, 80);
    const Tensors expected = module.forward_all(inputs), got = pieces.run(inputs);
    if (expected.size() != got.size()) differs(got.size(), " results, expected ", expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const double db = ratio_db(expected[i], got[i]);
      if (!(db >= floor_db)) differs("result ", i, " at batch ", batch, ": ", db, " dB, expected ", floor_db);
      if (expected[i].scalar_type() != got[i].scalar_type())
        differs("result ", i, " is ", got[i].scalar_type(), ", expected ", expected[i].scalar_type());
    }
  }
}

}  // namespace ulp::test
