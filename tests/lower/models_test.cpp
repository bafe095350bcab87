// Whole networks through capture, lower and Engine, in f32 and bf16.
#include <gtest/gtest.h>

#include <filesystem>

#include "support.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/models/registry.h"

namespace ulp::test {
namespace {

using Precision = LowerOptions::Precision;

struct ModelCase {
  const char* name;
  int64_t channels, size;
  int64_t batch = 5;
};

std::ostream& operator<<(std::ostream& out, const ModelCase& c) {
  return out << c.name;
}

class Models : public testing::TestWithParam<ModelCase> {
 protected:
  void SetUp() override {
    const ModelCase& c = GetParam();
    module = module_of(c);
    torch::manual_seed(8);
    input = torch::randn({c.batch, c.channels, c.size, c.size});
    const torch::NoGradGuard no_grad;
    expected = module->forward(input);
  }

  /// Made once for all tests of one network.
  static std::shared_ptr<graph::GraphModule> module_of(const ModelCase& c) {
    static std::map<std::string, std::shared_ptr<graph::GraphModule>> made;
    std::shared_ptr<graph::GraphModule>& module = made[c.name];
    if (module != nullptr) return module;
    torch::manual_seed(7);
    auto model =
        models::make_model(c.name, {.in_channels = c.channels, .num_classes = 10, .image_size = c.size});
    randomize_batch_norms(*model);
    return module = captured(model, torch::randn({2, c.channels, c.size, c.size}));
  }

  std::shared_ptr<graph::GraphModule> module;
  at::Tensor input, expected;
};

TEST_P(Models, F32WithinRounding) {
  const runtime::Plan plan = lower(*module);
  runtime::Engine engine(plan);
  const double error = relative_error(run_engine(engine, input), expected);
  EXPECT_LE(error, rounding_bound(plan, kF32, kF32)) << listing(plan);
  RecordProperty("error", std::to_string(error));
}

TEST_P(Models, BF16WithinRounding) {
  const runtime::Plan plan = lower(*module, {.precision = Precision::bf16});
  std::string first;  // reads the images as they come, in f32
  for (const runtime::Step& step : plan.steps) {
    const runtime::TensorInfo& x = plan.tensors[static_cast<size_t>(step.inputs[0])];
    const bool wide = step.op == runtime::Op::conv && x.type == runtime::DataType::f32;
    if (wide) first = step.constants.at("weight");
  }
  for (const auto& [name, constant] : plan.constants) {
    const bool f32 = name.ends_with("bias") || name == first;
    EXPECT_EQ(constant.type, f32 ? runtime::DataType::f32 : runtime::DataType::bf16) << name;
  }
  runtime::Engine engine(plan);
  const double error = relative_error(run_engine(engine, input), expected);
  EXPECT_LE(error, rounding_bound(plan, kF32, kBF16)) << listing(plan);
  // An engine that used f32 instead would be far closer than bf16 can be.
  EXPECT_GE(error, rounding_bound(plan, kF32, kF32) / 100);
}

TEST_P(Models, NothingIsLeftUnfused) {
  const runtime::Plan plan = lower(*module);
  for (const runtime::Step& step : plan.steps) {
    EXPECT_TRUE(step.op != runtime::Op::relu && step.op != runtime::Op::add) << listing(plan);
  }
  // One way in, and one out for images.
  const bool images = plan.tensors[static_cast<size_t>(plan.outputs[0])].shape.size() == 4;
  EXPECT_LE(std::ranges::count(plan.steps, runtime::Op::convert, &runtime::Step::op), images ? 2 : 1)
      << listing(plan);
}

/// Networks that have every op between them.
using ModelsFile = Models;

TEST_P(ModelsFile, SavedAndLoadedGivesTheSameBits) {
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / (std::string("lower_") + GetParam().name + ".ulp");
  const runtime::Plan plan = lower(*module);
  plan.save(path);
  runtime::Engine made(plan), loaded(path);
  EXPECT_TRUE(torch::equal(run_engine(made, input, 3), run_engine(loaded, input, 3)));
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Lower, ModelsFile,
                         testing::Values(ModelCase{"lenet5", 1, 28}, ModelCase{"resnet20", 3, 32},
                                         ModelCase{"mobilenet_v2", 3, 64}, ModelCase{"googlenet", 3, 64},
                                         ModelCase{"shufflenet_v2_x1_0", 3, 64}),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Lower, Models,
    testing::Values(ModelCase{"lenet5", 1, 28}, ModelCase{"mlp", 1, 28}, ModelCase{"resnet20", 3, 32},
                    ModelCase{"resnet18", 3, 64}, ModelCase{"resnet50", 3, 64},
                    ModelCase{"mobilenet_v2", 3, 64}, ModelCase{"resnext50_32x4d", 3, 64, 1},
                    ModelCase{"inception_v3", 3, 75, 1}, ModelCase{"googlenet", 3, 64, 2},
                    ModelCase{"shufflenet_v2_x1_0", 3, 64, 2}, ModelCase{"unet", 3, 32, 2}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ulp::test
