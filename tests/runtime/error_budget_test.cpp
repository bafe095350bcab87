// Engines in f32 that may run layers in bf16: which do, what is said of them, and how far off they are.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "support.h"
#include "ulp/base/error.h"

namespace ulp::runtime {
namespace {

using namespace ulp::runtime::testing;

/// 5 x 5 images, 3x3 convolution, linear layer.
Plan conv_network() {
  Builder b(Numbers::f32, 3);
  int32_t x = b.enter(b.input({kBatch, 24, 5, 5}));
  x = b.conv(x, 32, Window{.kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1}, Activation::relu);
  x = b.op(Op::flatten, {b.leave(x)});
  b.output(b.leave(b.linear(b.enter(x, Layout::plain), 40)));
  return b.plan;
}

std::vector<StepProfile> layers_of(const Plan& plan, const EngineOptions& options) {
  Engine engine(plan, options);
  std::vector<StepProfile> steps = profile_of(engine, make_inputs(plan, 2, 1), 2);
  std::erase_if(steps, [](const StepProfile& step) { return step.op != "linear" && step.op != "conv"; });
  return steps;
}

/// A table in which bf16 is so many times as fast for every layer.
void write_table(const std::filesystem::path& path, const Plan& plan, double faster) {
  std::filesystem::remove(path);
  Engine(plan, {.threads = 1, .error_budget = 0.01, .max_measuring_seconds = 100, .sparse_table = path});
  nlohmann::json json = read_json(path);
  EXPECT_EQ(json["layers"].size(), 2U) << json;
  for (auto& [layer, findings] : json["layers"].items()) {
    for (auto& found : findings) found["faster"] = faster;
  }
  std::ofstream(path) << json;
}

TEST(ErrorBudget, LayersRunInBf16WhereThatIsFaster) {
  const TemporaryFolder folder;
  const Plan plan = conv_network();
  // Thirds of whole numbers, which bf16 rounds.
  std::vector<float> numbers(3 * 24 * 5 * 5);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * 7 % 23) / 3 - 3;
  std::vector<Bytes> inputs = {Bytes(numbers.size() * sizeof(float))};
  std::memcpy(inputs[0].data(), numbers.data(), inputs[0].size());
  Engine wide(plan);
  const Bytes expected = run_engine(wide, 3, inputs)[0];
  for (const double faster : {2.5, 1.05}) {
    write_table(folder / "table", plan, faster);
    const EngineOptions options{.threads = 1, .error_budget = 0.01, .sparse_table = folder / "table"};
    for (const StepProfile& step : layers_of(plan, options)) {
      EXPECT_EQ(step.kernel.ends_with("_of_f32"), faster > 2) << step.kernel;
      EXPECT_NE(step.note.find("bf16, error 0.15 %: "), std::string::npos) << step.note;
      EXPECT_NE(step.note.find(faster > 2 ? "2.50x faster at " : "left in f32 at "), std::string::npos)
          << step.note;
    }
    Engine narrow(plan, options);
    const Bytes found = run_engine(narrow, 3, inputs)[0];
    if (faster < 2) {
      EXPECT_EQ(found, expected);
      continue;
    }
    ASSERT_EQ(found.size(), expected.size());
    double changes = 0, squares = 0;
    for (size_t i = 0; i + 4 <= found.size(); i += 4) {
      float a = 0, b = 0;
      std::memcpy(&a, found.data() + i, 4);
      std::memcpy(&b, expected.data() + i, 4);
      changes += (a - b) * (a - b);
      squares += b * b;
    }
    EXPECT_GT(changes, 0) << "products are rounded";
    EXPECT_LT(std::sqrt(changes / squares), 0.006) << "two layers of 0.15 to 0.3 %";
  }
}

TEST(ErrorBudget, ConvolutionsOfOtherWindowsAreMeasuredApart) {
  Builder b(Numbers::f32, 3);
  int32_t x = b.enter(b.input({kBatch, 32, 8, 8}));
  for (const int64_t size : {3, 5, 5})
    x = b.conv(x, 32, Window{.kernel_h = size, .kernel_w = size, .pad_h = size / 2, .pad_w = size / 2});
  b.output(b.leave(x));
  const TemporaryFolder folder;
  Engine(
      b.plan,
      {.threads = 1, .error_budget = 0.01, .max_measuring_seconds = 100, .sparse_table = folder / "table"});
  EXPECT_EQ(read_json(folder / "table")["layers"].size(), 2U) << "of 3x3, and of both of 5x5";
}

TEST(ErrorBudget, LayersBeyondItStayAndSaySo) {
  for (const StepProfile& step : layers_of(conv_network(), {.error_budget = 0.001})) {
    EXPECT_EQ(step.note, "left in f32: bf16 would err by 0.15 %");
    EXPECT_EQ(step.kernel.find("bf16"), std::string::npos);
  }
}

TEST(ErrorBudget, NothingIsSaidWithoutOne) {
  for (const StepProfile& step : layers_of(conv_network(), {})) EXPECT_EQ(step.note, "");
}

TEST(ErrorBudget, LayersStayWhenTheTimeForMeasuringIsOver) {
  for (const StepProfile& step :
       layers_of(conv_network(), {.error_budget = 0.01, .max_measuring_seconds = 0})) {
    EXPECT_EQ(step.note, "bf16, error 0.15 %; left in f32: the time for measuring is over");
    EXPECT_EQ(step.kernel.find("bf16"), std::string::npos);
  }
}

TEST(ErrorBudget, WrongOptionsAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double wrong : {-0.1, 1.1, nan})
    EXPECT_THROW(Engine(conv_network(), {.error_budget = wrong}), Error) << wrong;
  for (const double wrong : {-1.0, nan})
    EXPECT_THROW(Engine(conv_network(), {.max_measuring_seconds = wrong}), Error) << wrong;
}

}  // namespace
}  // namespace ulp::runtime
