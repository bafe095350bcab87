// Adaptive averages of codes over windows of unequal sizes: graph, engine and TensorFlow Lite file have one
// rule, that of plain loops over whole numbers.
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "captured_function.h"
#include "tflite_run.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/operators/ops.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/static/quantized_average.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {

namespace {

using UnequalModule = std::shared_ptr<graph::GraphModule>;
using UnequalSizes = std::vector<int64_t>;

/// Codes of the tests: s8 of one scale.
struct UnequalCodes {
  float scale = 0.037F;
  int64_t zero = 0;
  at::Tensor to_codes(const at::Tensor& x) const {
    return quant::quantize(x, torch::tensor({scale}), torch::tensor({zero}, torch::kInt), -1, -128, 127,
                           at::kChar);
  }
  at::Tensor to_numbers(const at::Tensor& codes) const {
    return quant::dequantize(codes, torch::tensor({scale}), torch::tensor({zero}, torch::kInt), -1);
  }
};

at::Tensor adaptive_average(const at::Tensor& x, const UnequalSizes& out) {
  return x.dim() == 3 ? at::adaptive_avg_pool1d(x, out) : at::adaptive_avg_pool2d(x, out);
}

/// x -> codes -> average -> codes -> numbers, in LiteRT's rounding.
UnequalModule average_of_codes(const UnequalCodes& codes, const UnequalSizes& out, const at::Tensor& x) {
  const auto module = captured_function(
      [=](const at::Tensor& v) {
        return codes.to_numbers(codes.to_codes(adaptive_average(codes.to_numbers(codes.to_codes(v)), out)));
      },
      x);
  const std::shared_ptr<graph::Graph> graph = module->graph().clone();
  quant::average_on_codes(*graph, quant::AverageRounding::half_away);
  graph->verify();
  auto made = std::make_shared<graph::GraphModule>(graph);
  made->eval();
  return made;
}

/// Averages of codes [N, C, H, W] from floor(i in / out) to ceil((i + 1) in / out); what lies in the middle
/// of two codes goes away from code 0.
at::Tensor by_plain_loops(const at::Tensor& codes, int64_t rows, int64_t columns) {
  const auto x = codes.accessor<int8_t, 4>();
  at::Tensor made = torch::zeros({codes.size(0), codes.size(1), rows, columns}, at::kChar);
  auto y = made.accessor<int8_t, 4>();
  const auto first = [](int64_t i, int64_t in, int64_t out) { return i * in / out; };
  const auto behind = [](int64_t i, int64_t in, int64_t out) { return ((i + 1) * in + out - 1) / out; };
  const int64_t height = codes.size(2), width = codes.size(3);
  for (int64_t n = 0; n < codes.size(0); ++n) {
    for (int64_t c = 0; c < codes.size(1); ++c) {
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          int64_t sum = 0, count = 0;
          for (int64_t h = first(i, height, rows); h < behind(i, height, rows); ++h) {
            for (int64_t w = first(j, width, columns); w < behind(j, width, columns); ++w) {
              sum += x[n][c][h][w];
              ++count;
            }
          }
          y[n][c][i][j] = static_cast<int8_t>((sum + (sum > 0 ? count / 2 : -(count / 2))) / count);
        }
      }
    }
  }
  return made;
}

at::Tensor by_file_of_codes(const graph::GraphModule& module, const at::Tensor& codes) {
  const auto file =
      read_tflite(exchange::export_tflite(module, {.batch = codes.size(0), .integer_io = true}));
  for (const TfliteOperator& op : file->operators) EXPECT_EQ(file->output(op).type, kInt8Type) << op.code;
  const at::Tensor made = TfliteRun(*file).run({channels_last(codes)}).at(0);
  return made.dim() == 4 ? made.permute({0, 3, 1, 2}) : made;
}

size_t averages_in(const graph::GraphModule& module) {
  size_t count = 0;
  for (const auto& node : module.graph().nodes()) count += node->is("ulp::average_codes");
  return count;
}

/// Whether graph, engine and file give the codes of plain loops.
void expect_one_rule(const UnequalCodes& how, const UnequalSizes& in, const UnequalSizes& out) {
  const at::Tensor codes = torch::randint(-128, 128, in, at::kChar);
  const at::Tensor x = how.to_numbers(codes);
  ASSERT_TRUE(torch::equal(how.to_codes(x), codes));
  const UnequalModule module = average_of_codes(how, out, x);
  EXPECT_GE(averages_in(*module), 1U) << module->graph();
  const bool sequence = codes.dim() == 3;
  at::Tensor right = by_plain_loops(sequence ? codes.unsqueeze(2) : codes, sequence ? 1 : out[0], out.back());
  if (sequence) right = right.squeeze(2);
  const at::Tensor numbers = how.to_numbers(right);
  EXPECT_TRUE(torch::equal(module->forward(x), numbers)) << module->graph();
  runtime::Engine engine(lower(*module));
  EXPECT_TRUE(torch::equal(run_engine_all(engine, {x}).at(0), numbers)) << module->graph();
  EXPECT_TRUE(torch::equal(by_file_of_codes(*module, codes), right)) << module->graph();
  // Another batch than that of the capture.
  const at::Tensor twice = torch::cat({x, x.flip(0)});
  EXPECT_TRUE(torch::equal(module->forward(twice).slice(0, 0, x.size(0)), numbers));
}

}  // namespace

TEST(ExportTfliteUnequal, DrawnSizesHaveOneRule) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(8);
  Draw dice(38);
  for (int i = 0; i < 24; ++i) {
    UnequalSizes in = {dice.between(1, 2), dice.between(1, 5)}, out;
    for (int64_t d = dice.between(1, 2); d > 0; --d) {
      in.push_back(dice.between(5, 12));
      out.push_back(dice.between(2, 5));
    }
    std::ostringstream words;
    words << in << " to " << out;
    SCOPED_TRACE(words.str());
    expect_one_rule({.scale = dice.one_of({0.037F, 0.5F, 3e-5F}), .zero = dice.between(-128, 127)}, in, out);
  }
}

/// Windows that overlap at equal distances are one average.
TEST(ExportTfliteUnequal, EqualWindowsThatOverlapAreOneAverage) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(9);
  const at::Tensor sequence = torch::randn({2, 3, 7}), image = torch::randn({2, 3, 7, 12});
  EXPECT_EQ(averages_in(*average_of_codes({}, {3}, sequence)), 1U);
  EXPECT_EQ(averages_in(*average_of_codes({}, {3, 3}, image)), 1U);
  EXPECT_EQ(averages_in(*average_of_codes({}, {3, 5}, image)), 3U);
  expect_one_rule({}, {2, 3, 7}, {3});
  expect_one_rule({}, {2, 3, 7, 9}, {3, 4});
}

/// The average of more than 128 runs stays one of numbers, which the file cannot have.
TEST(ExportTfliteUnequal, SoManyRunsStayNumbers) {
  const torch::NoGradGuard no_grad;
  const at::Tensor image = torch::randn({1, 1, 64, 64});
  EXPECT_EQ(averages_in(*average_of_codes({}, {37, 41}, image)), 0U);
}

/// Calibrated networks get them by the recipe, between layers.
TEST(ExportTfliteUnequal, LayersAroundThemReadAndWriteCodes) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(10);
  const at::Tensor image = torch::randn({2, 3, 9, 11});
  auto net = std::make_shared<FunctionNet>();
  auto first = net->register_module("first", torch::nn::Conv2d(3, 4, 1)),
       last = net->register_module("last", torch::nn::Conv2d(4, 2, 1));
  net->body = [=](const at::Tensor& v) mutable {
    return last->forward(at::adaptive_avg_pool2d(first->forward(v), {4, 5}));
  };
  const auto prepared = quant::prepare(captured_net(net, image), quant::Recipe::tflite_int8());
  prepared->forward(image);
  const auto module = quant::convert(prepared);
  const auto file = read_tflite(exchange::export_tflite(*module, {.batch = 2, .integer_io = true}));
  for (const TfliteOperator& op : file->operators) EXPECT_EQ(file->output(op).type, kInt8Type) << op.code;
  runtime::Engine engine(lower(*module));
  const at::Tensor made = run_engine_all(engine, {image}).at(0), right = module->forward(image);
  EXPECT_LE(relative_difference(made, right), 1.0 / 64);
}

}  // namespace ulp::test
