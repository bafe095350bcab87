// Drawn chains and parts whose sizes and order formats have by other rules: sequences that leave TensorFlow
// Lite files, parts of the batch, numbers rounded to decimals. Files give LibTorch's numbers or are refused.
#include <torch/torch.h>

#include <cmath>
#include <optional>
#include <sstream>
#include <string>

#include "captured_function.h"
#include "coreml_run.h"
#include "error_of.h"
#include "temporary_folder.h"
#include "tflite_run.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/import_pt2.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/lower/partitioned_model.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {

namespace {

using LayoutModule = std::shared_ptr<graph::GraphModule>;

/// One op on [N, C, L], with tensors of its own.
struct SequenceOp {
  std::string name;
  std::function<at::Tensor(const at::Tensor&)> apply;
};

SequenceOp drawn_window(Draw& draw, int64_t length) {
  const int64_t kernel = draw.between(1, std::min<int64_t>(3, length)), stride = draw.between(1, 2),
                pad = draw.between(0, kernel / 2);
  if (draw.coin()) {
    return {"max_pool1d", [=](const at::Tensor& x) { return torch::max_pool1d(x, kernel, stride, pad); }};
  }
  return {"avg_pool1d", [=](const at::Tensor& x) { return torch::avg_pool1d(x, kernel, stride, pad); }};
}

SequenceOp drawn_conv(Draw& draw, const at::Tensor& now) {
  const int64_t channels = now.size(1), kernel = draw.between(1, std::min<int64_t>(3, now.size(2))),
                pad = draw.between(0, 1), stride = draw.between(1, 2);
  const int64_t out = draw.between(1, 6);
  const at::Tensor weight = torch::randn({out, channels, kernel}), bias = torch::randn({out});
  return {"conv1d", [=](const at::Tensor& x) { return torch::conv1d(x, weight, bias, stride, pad); }};
}

SequenceOp drawn_sequence_op(Draw& draw, const at::Tensor& now) {
  const at::Tensor channels = torch::randn({now.size(1), 1}), last = torch::randn({now.size(2)}),
                   matrix = torch::randn({draw.between(2, 6), now.size(2)});
  const int64_t dim = draw.between(1, 2);
  switch (draw.between(0, 11)) {
    case 0:
    case 1:
      return drawn_conv(draw, now);
    case 2:
    case 3:
      return drawn_window(draw, now.size(2));
    case 4:
      return {"transpose", [](const at::Tensor& x) { return x.transpose(1, 2); }};
    case 5:
      return {"relu", [](const at::Tensor& x) { return x.relu(); }};
    case 6:
      return {"scaled channels", [=](const at::Tensor& x) { return x * channels + 1; }};
    case 7:
      return {"added along the last", [=](const at::Tensor& x) { return x + last; }};
    case 8:
      return {"softmax", [=](const at::Tensor& x) { return x.softmax(dim); }};
    case 9:
      return {"linear", [=](const at::Tensor& x) { return torch::linear(x, matrix); }};
    case 10:
      return {"cat", [=](const at::Tensor& x) { return torch::cat({x, x * 2}, dim); }};
    default:
      return {"permuted and back", [](const at::Tensor& x) { return (x.permute({0, 2, 1}) * 2).mT() - 1; }};
  }
}

/// The problem of the file of a drawn chain; empty where there is none.
std::string fault_of_sequence(uint64_t seed, int& written) {
  torch::manual_seed(static_cast<int64_t>(seed));
  Draw draw(seed);
  const int64_t side = draw.between(2, 6);
  // Where sizes are equal, another order changes the numbers alone.
  const at::Tensor x = torch::randn({draw.between(1, 3), side, draw.coin() ? side : draw.between(2, 7)});
  at::Tensor now = x;
  std::vector<SequenceOp> ops;
  std::string words;
  for (int64_t count = draw.between(1, 4); count > 0; --count) {
    ops.push_back(drawn_sequence_op(draw, now));
    now = ops.back().apply(now);
    words += ", " + ops.back().name;
  }
  const auto body = [ops](const at::Tensor& one) {
    at::Tensor y = one;
    for (const SequenceOp& op : ops) y = op.apply(y);
    return y;
  };
  const LayoutModule module = captured_function(body, x);
  std::string bytes;
  try {
    bytes = exchange::export_tflite(*module, {.batch = x.size(0)});
  } catch (const Error& error) {
    return std::string(error.what()).starts_with("[exchange.export_tflite]") ? "" : error.what() + words;
  }
  ++written;
  const auto file = read_tflite(bytes);
  const at::Tensor ours = TfliteRun(*file).run({x}).at(0);
  std::ostringstream text;
  if (relative_difference(now, ours) > 1e-5) text << x.sizes() << words << ": " << ours << " for " << now;
  return text.str();
}

/// A part of the batch.
struct BatchPart {
  std::optional<int64_t> start, end;
  int64_t step = 1, behind = 0;

  at::Tensor of(const at::Tensor& x) const {
    const at::Tensor part = x.slice(0, start, end, step) * 2;
    if (behind == 1) return part.flatten(1) + 0.5;
    return behind == 2 ? part.relu().sum(1) : part;
  }
  std::string words() const {
    std::ostringstream out;
    out << "x[" << (start ? std::to_string(*start) : "") << ":" << (end ? std::to_string(*end) : "") << ":"
        << step << "], " << behind;
    return out.str();
  }
};

BatchPart drawn_part(Draw& draw) {
  BatchPart part;
  if (draw.between(0, 3) > 0) part.start = draw.between(-6, 6);
  if (draw.between(0, 3) > 0) part.end = draw.between(-6, 8);
  part.step = draw.one_of<int64_t>({1, 1, 2, 3});
  part.behind = draw.between(0, 2);
  return part;
}

/// Counts the files that were written, by format.
struct PartCounts {
  int onnx = 0, half = 0, tflite = 0, coreml = 0, pt2 = 0, engines = 0, pieces = 0;
};

bool is_close(const at::Tensor& ours, const at::Tensor& right, double most) {
  return ours.sizes() == right.sizes() && (right.numel() == 0 || relative_difference(right, ours) <= most);
}

/// Runs `made` and compares; a refusal is by name.
void expect_or_refused(int& count, const std::string& words, const at::Tensor& right, double most,
                       const std::function<at::Tensor()>& made) {
  try {
    const at::Tensor ours = made();
    EXPECT_TRUE(is_close(ours, right, most)) << words << ": " << ours << " for " << right;
    ++count;
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("[")) << words << error.what();
  }
}

using PartRun = std::function<at::Tensor(const at::Tensor&)>;

/// The file of a writer read back; what is refused is refused at each run.
PartRun read_back(const std::function<LayoutModule()>& made) {
  try {
    const LayoutModule back = made();
    return [back](const at::Tensor& x) { return back->forward(x); };
  } catch (const Error& error) {
    return [error](const at::Tensor&) -> at::Tensor { throw error; };
  }
}

void check_part(const BatchPart& part, const LayoutModule& module, PartCounts& counts) {
  const PartRun onnx = read_back(
                    [&] { return exchange::import_onnx(exchange::export_onnx(*module), "model.onnx"); }),
                half = read_back([&] {
                  return exchange::import_onnx(exchange::export_onnx(*module, {.fp16 = true}), "model.onnx");
                }),
                pt2 = read_back(
                    [&] { return exchange::import_pt2(exchange::export_pt2(*module), "model.pt2"); });
  PartitionedModel pieces = lower_partitioned(*module);
  for (const int64_t batch : {1, 3, 7}) {
    const at::Tensor x = torch::randn({batch, 3, 2}), right = part.of(x);
    const std::string words = part.words() + " of " + std::to_string(batch) + " ";
    EXPECT_TRUE(torch::equal(module->forward(x), right)) << words;
    expect_or_refused(counts.onnx, words + "ONNX", right, 0, [&] { return onnx(x); });
    expect_or_refused(counts.half, words + "fp16", right, 5e-3, [&] { return half(x); });
    expect_or_refused(counts.pt2, words + "pt2", right, 0, [&] { return pt2(x); });
    expect_or_refused(counts.pieces, words + "pieces", right, 0, [&] { return pieces.run({x}).at(0); });
    expect_or_refused(counts.tflite, words + "TensorFlow Lite", right, 1e-6, [&] {
      const auto file = read_tflite(exchange::export_tflite(*module, {.batch = batch}));
      return TfliteRun(*file).run({x}).at(0);
    });
    expect_or_refused(counts.coreml, words + "Core ML", right, 1e-6, [&] {
      const TemporaryFolder folder;
      exchange::export_coreml(*module, folder / "m.mlpackage", {.batch = batch});
      return MilRun(read_coreml(folder / "m.mlpackage")).run(x);
    });
  }
  expect_or_refused(counts.engines, part.words() + " engine", part.of(torch::ones({5, 3, 2})), 0, [&] {
    runtime::Engine engine(lower(*module));
    return run_engine_all(engine, {torch::ones({5, 3, 2})}).at(0);
  });
}

}  // namespace

TEST(RandomLayout, SequencesLeaveTensorFlowLiteInTheirOrder) {
  const torch::NoGradGuard no_grad;
  int written = 0;
  constexpr uint64_t kChains = 80;
  for (uint64_t seed = 0; seed < kChains; ++seed)
    EXPECT_EQ(fault_of_sequence(seed, written), "") << "seed " << seed;
  EXPECT_GT(written, static_cast<int>(kChains * 9 / 10));
}

TEST(RandomLayout, PartsOfTheBatchHaveTheirRowsOrAreRefused) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(2);
  PartCounts counts;
  int captured = 0;
  constexpr uint64_t kParts = 16;
  for (uint64_t seed = 0; seed < kParts; ++seed) {
    Draw draw(seed);
    const BatchPart part = drawn_part(draw);
    LayoutModule module;
    try {
      module = captured_function([=](const at::Tensor& x) { return part.of(x); }, torch::randn({4, 3, 2}));
    } catch (const Error& error) {
      EXPECT_SAYS(std::string(error.what()), "[graph.");
      continue;
    }
    ++captured;
    check_part(part, module, counts);
  }
  EXPECT_GT(captured, 8);
  EXPECT_GT(counts.onnx, captured);
  EXPECT_GT(counts.half, captured);
  EXPECT_GT(counts.tflite, captured);
  EXPECT_GT(counts.coreml, captured);
  EXPECT_GT(counts.pieces, captured);
}

/// Numbers of any size, some of them halfway between two.
TEST(RandomLayout, RoundsToAnyDecimals) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(3);
  int onnx = 0, tflite = 0, coreml = 0, pieces = 0;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    Draw draw(seed);
    const int64_t decimals = draw.between(-9, 9);
    const double unit = std::pow(10.0, static_cast<double>(draw.between(-6, 8)));
    at::Tensor x = torch::randn({4, 6}) * unit;
    x.select(0, 0) = (torch::arange(6) - 2.5) * std::pow(10.0, -static_cast<double>(decimals));
    const LayoutModule module =
        captured_function([=](const at::Tensor& one) { return one.round(decimals); }, x);
    const at::Tensor right = x.round(decimals);
    const std::string words = std::to_string(decimals) + " decimals of " + std::to_string(unit) + " ";
    expect_or_refused(onnx, words + "ONNX", right, 0, [&] {
      return exchange::import_onnx(exchange::export_onnx(*module), "model.onnx")->forward(x);
    });
    expect_or_refused(tflite, words + "TensorFlow Lite", right, 0, [&] {
      const auto file = read_tflite(exchange::export_tflite(*module, {.batch = 4}));
      return TfliteRun(*file).run({x}).at(0);
    });
    expect_or_refused(coreml, words + "Core ML", right, 0, [&] {
      const TemporaryFolder folder;
      exchange::export_coreml(*module, folder / "m.mlpackage", {.batch = 4});
      return MilRun(read_coreml(folder / "m.mlpackage")).run(x);
    });
    expect_or_refused(pieces, words + "pieces", right, 0,
                      [&] { return lower_partitioned(*module).run({x}).at(0); });
  }
  EXPECT_GT(onnx, 8);
  EXPECT_GT(tflite, 8);
  EXPECT_GT(coreml, 8);
  EXPECT_GT(pieces, 8);
}

}  // namespace ulp::test
