#include "stages.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "graph/same.h"
#include "lower/support.h"
#include "ulp/amp/autocast/autocast.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/lower/pieces.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/quant/weights/weights.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {

namespace {

constexpr int64_t kExample = 4;  ///< the batch that is captured
constexpr int64_t kOther = 7;    ///< and one that is not
constexpr double kQuantizedDb =
    10;  ///< of 8 bits against the float graph: random weights, a few hundred values
constexpr double kBF16Db = 25, kInt8Db = 15, kF32Db = 90;
constexpr double kF32Least = 1e-5;  ///< quotients and powers of small numbers enlarge what was rounded before

/// A stage that did not do what it should.
template <typename... Parts>
[[noreturn]] void differs(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  throw std::runtime_error(out.str());
}

void expect_finite(const Tensors& results) {
  for (const at::Tensor& result : results)
    if (!torch::isfinite(result).all().item<bool>()) differs("a result is not finite");
}

void expect_same_bits(const Tensors& want, const Tensors& got, const char* what) {
  if (want.size() != got.size())
    differs(want.size(), " of ", what, " in the model, ", got.size(), " in the graph");
  for (size_t i = 0; i < want.size(); ++i)
    if (!same_bits(want[i], got[i])) differs(what, " ", i, " of the graph differs from the model's");
}

/// Signal to noise of two results, infinite where they are equal.
double ratio_db(const at::Tensor& exact, const at::Tensor& result) {
  if (exact.sizes() != result.sizes()) differs("expected sizes ", exact.sizes(), ", got ", result.sizes());
  return quant::quantization_error(exact.to(at::kFloat), result.to(at::kFloat)).sqnr_db;
}

/// The first line; LibTorch's messages go on with where it is in LibTorch.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

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
    case Stage::engine_bf16:
      return run_engine_of(*graph_, stage);
    case Stage::engine_int8:
      return run_engine_of(*quantized(), stage);
    case Stage::pieces_fp32:
      return run_pieces_of(*graph_, kF32Db);
    case Stage::pieces_int8:
      return run_pieces_of(*quantized(), kInt8Db);
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
    expect_same_bits(want.gradients, got.gradients, "gradient");
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
  at::Tensor loss = torch::zeros({});
  for (const at::Tensor& result : results) loss = loss + result.to(at::kFloat).square().mean();
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

void Subject::run_engine_of(graph::GraphModule& module, Stage stage) {
  const torch::NoGradGuard no_grad;
  const bool bf16 = stage == Stage::engine_bf16, exactly = stage == Stage::engine_fp32;
  using Precision = LowerOptions::Precision;
  const runtime::Plan plan = lower(module, {.precision = bf16 ? Precision::bf16 : Precision::f32});
  runtime::Engine engine(plan, {.threads = 2});
  for (const int64_t batch : {int64_t{1}, kExample, kOther}) {
    const Tensors inputs = draw(batch, 80);
    const Tensors expected = module.forward_all(inputs), got = run_engine_all(engine, inputs);
    if (expected.size() != got.size()) differs(got.size(), " results, expected ", expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const double db = ratio_db(expected[i], got[i]), floor = bf16 ? kBF16Db : kInt8Db;
      const double error = relative_error(got[i], expected[i]),
                   limit = std::max(kF32Least, rounding_bound(plan, kF32, kF32));
      if (exactly ? error <= limit : db >= floor) continue;
      differs("result ", i, " at batch ", batch, ": relative error ", error, " (rounding: ", limit, "), ", db,
              " dB");
    }
  }
}

void Subject::run_pieces_of(graph::GraphModule& module, double floor_db) {
  const torch::NoGradGuard no_grad;
  PiecewiseModel pieces = lower_in_pieces(module);
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
