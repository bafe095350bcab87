// Quantized networks: every step of the engine against the graph with explicit quantize and dequantize nodes.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "int8_support.h"
#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/models/registry.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {
namespace {

using runtime::DataType;
using runtime::TensorInfo;

/// A network in float and in 8 bits.
struct Quantized {
  std::shared_ptr<graph::GraphModule> floating, module;
};

Quantized make_quantized(const std::string& name, int64_t channels, int64_t size) {
  torch::manual_seed(8);
  const torch::NoGradGuard no_grad;
  auto model = models::make_model(name, {.in_channels = channels, .num_classes = 10, .image_size = size});
  randomize_batch_norms(*model);
  auto module = captured(model, torch::randn({2, channels, size, size}));
  auto prepared = quant::prepare(module, quant::Recipe::x86_int8());
  for (int i = 0; i < 2; ++i) prepared->forward(torch::randn({4, channels, size, size}));
  return {module, quant::convert(prepared)};
}

/// Made once for all tests of one network.
const Quantized& quantized(const std::string& name, int64_t channels, int64_t size) {
  static std::map<std::string, Quantized> made;
  auto at = made.find(name);
  if (at == made.end()) at = made.emplace(name, make_quantized(name, channels, size)).first;
  return at->second;
}

struct Int8Case {
  const char* name;
  int64_t channels, size;
  double floor_db;    // signal to quantization noise of the logits
  int64_t batch = 4;  // images of the comparisons
};

std::ostream& operator<<(std::ostream& out, const Int8Case& c) {
  return out << c.name;
}

/// The one whose result nothing quantizes.
const runtime::Step* last_layer(const runtime::Plan& plan) {
  const auto found =
      std::ranges::find_if(plan.steps.rbegin(), plan.steps.rend(),
                           [](const runtime::Step& step) { return step.constants.contains("weight_scale"); });
  return &*found;
}

class Int8 : public testing::TestWithParam<Int8Case> {
 protected:
  void SetUp() override {
    const Int8Case& c = GetParam();
    network = quantized(c.name, c.channels, c.size);
    module = network.module;
    plan = lower(*module);
    torch::manual_seed(9);
    input = torch::randn({c.batch, c.channels, c.size, c.size});
  }

  Quantized network;
  std::shared_ptr<graph::GraphModule> module;
  runtime::Plan plan;
  at::Tensor input;
};

TEST_P(Int8, EveryStepIsTheGraphsWithinOneCode) {
  RecordProperty("worst_step", expect_steps_as_graph(*module, plan, input));
}

TEST_P(Int8, NoRoundTripThroughFloat) {
  const runtime::Step* last = last_layer(plan);
  for (const runtime::Step& step : plan.steps) {
    if (step.op == runtime::Op::conv || step.op == runtime::Op::linear) {
      EXPECT_EQ(info(plan, step.inputs[0]).type, DataType::u8) << step.name;
      const bool is_result = &step == last;
      EXPECT_EQ(info(plan, step.output).type, is_result ? DataType::f32 : DataType::u8) << step.name;
    }
  }
  // One way in, and one out for images.
  const bool images = info(plan, plan.outputs[0]).shape.size() == 4;
  EXPECT_LE(std::ranges::count(plan.steps, runtime::Op::convert, &runtime::Step::op), images ? 2 : 1)
      << listing(plan);
}

/// Where a sum lies next to the middle of two codes, the last bit of float32 decides, and in a deep network
/// with random weights such differences spread. The engine must then be as near to the float network as the
/// graph is.
TEST_P(Int8, WholeEngineIsAsNearToFloatAsTheGraph) {
  const torch::NoGradGuard no_grad;
  const at::Tensor graph_result = module->forward(input);
  const at::Tensor floating = network.floating->forward(input);
  runtime::Engine engine(plan);
  const at::Tensor result = run_engine(engine, input, 3);
  const double error = (result - floating).norm().item<double>();
  const double graph_error = (graph_result - floating).norm().item<double>();
  Distance distance;
  distance.add(result, graph_result, step_of_sum(plan, *last_layer(plan)));
  RecordProperty("logits", std::to_string(distance.share()) + " " + std::to_string(distance.largest));
  RecordProperty("errors", std::to_string(error) + " " + std::to_string(graph_error));
  EXPECT_LE(error, 1.25 * graph_error);
  EXPECT_GE(error, 0.5 * graph_error);
  const double decibels = 20 * std::log10(floating.norm().item<double>() / error);
  RecordProperty("sqnr", std::to_string(decibels));
  EXPECT_GE(decibels, GetParam().floor_db);
}

/// Networks that have every op between them.
using Int8NetworkFile = Int8;

TEST_P(Int8NetworkFile, SavedAndLoadedGivesTheSameBits) {
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / (std::string("lower_int8_") + GetParam().name + ".ulp");
  plan.save(path);
  runtime::Engine made(plan), loaded(path);
  EXPECT_TRUE(torch::equal(run_engine(made, input), run_engine(loaded, input)));
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Lower, Int8NetworkFile,
                         testing::Values(Int8Case{"lenet5", 1, 28, 37}, Int8Case{"resnet20", 3, 32, 32},
                                         Int8Case{"mobilenet_v2", 3, 64, 33},
                                         Int8Case{"googlenet", 3, 64, 43},
                                         Int8Case{"shufflenet_v2_x1_0", 3, 64, 40}),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Lower, Int8,
                         testing::Values(Int8Case{"lenet5", 1, 28, 37}, Int8Case{"mlp", 1, 28, 37},
                                         Int8Case{"resnet20", 3, 32, 32}, Int8Case{"resnet18", 3, 64, 32},
                                         Int8Case{"resnet50", 3, 64, 24}, Int8Case{"mobilenet_v2", 3, 64, 33},
                                         Int8Case{"resnext50_32x4d", 3, 64, 33, 1},
                                         Int8Case{"googlenet", 3, 64, 43, 1},
                                         Int8Case{"inception_v3", 3, 75, 20},
                                         Int8Case{"shufflenet_v2_x1_0", 3, 64, 40, 1},
                                         Int8Case{"unet", 3, 32, 28, 1}),
                         [](const auto& info) { return info.param.name; });

TEST(Int8File, IsAtMost27PercentOfF32) {
  const std::filesystem::path folder = testing::TempDir();
  const Quantized& network = quantized("resnet20", 3, 32);
  lower(*network.module).save(folder / "lower_i8.ulp");
  lower(*network.floating).save(folder / "lower_f32.ulp");
  const auto i8 = static_cast<double>(std::filesystem::file_size(folder / "lower_i8.ulp"));
  const auto f32 = static_cast<double>(std::filesystem::file_size(folder / "lower_f32.ulp"));
  EXPECT_LE(i8 / f32, 0.27);
  RecordProperty("ratio", std::to_string(i8 / f32));
  std::filesystem::remove(folder / "lower_i8.ulp");
  std::filesystem::remove(folder / "lower_f32.ulp");
}

}  // namespace
}  // namespace ulp::test
