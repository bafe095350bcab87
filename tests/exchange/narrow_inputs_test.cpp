// Inputs and results of bool and uint8 in TensorFlow Lite files and Core ML packages, whose operators compute
// them in int32: bytes wrap around as in LibTorch.
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "captured_function.h"
#include "coreml_run.h"
#include "error_of.h"
#include "temporary_folder.h"
#include "tflite_run.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_tflite.h"

namespace ulp::test {

namespace {

using NarrowBody = std::function<at::Tensor(const at::Tensor&)>;
using NarrowBodies = std::vector<std::pair<std::string, NarrowBody>>;

at::Tensor narrow_by_tflite(const graph::GraphModule& module, const at::Tensor& x) {
  const auto file = read_tflite(exchange::export_tflite(module, {.batch = x.size(0)}));
  const at::Tensor made = TfliteRun(*file).run({channels_last(x)}).at(0);
  return made.dim() == 4 ? made.permute({0, 3, 1, 2}) : made;
}

/// A caller of Core ML gives integers.
at::Tensor narrow_by_coreml(const graph::GraphModule& module, const at::Tensor& x) {
  const TemporaryFolder folder;
  exchange::export_coreml(module, folder / "m.mlpackage", {.batch = x.size(0)});
  const MilModel model = read_coreml(folder / "m.mlpackage");
  return MilRun(model).run(x.to(at::kInt));
}

void expect_numbers_of(const NarrowBodies& bodies, const at::Tensor& x) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, body] : bodies) {
    SCOPED_TRACE(name);
    const auto module = captured_function(body, x);
    const at::Tensor right = body(x);
    const at::Tensor lite = narrow_by_tflite(*module, x), core = narrow_by_coreml(*module, x);
    EXPECT_EQ(lite.scalar_type(), right.scalar_type());
    EXPECT_LE(relative_difference(lite.to(at::kDouble), right.to(at::kDouble)), 1e-6) << lite << right;
    EXPECT_LE(relative_difference(core.to(at::kDouble), right.to(at::kDouble)), 1e-6) << core << right;
  }
}

TEST(ImportanceInputs, Bytes) {
  torch::manual_seed(4);
  const at::Tensor images = torch::randint(256, {2, 3, 4, 5}, torch::kByte);
  expect_numbers_of({{"scaled", [](const at::Tensor& x) { return x.to(at::kFloat) / 255.0; }},
                     {"true division", [](const at::Tensor& x) { return x / 255.0; }},
                     {"beside floats", [](const at::Tensor& x) { return x * 0.5 - 1.0; }}},
                    images);
  const at::Tensor x = torch::randint(256, {3, 7}, torch::kByte);
  const at::Tensor table = torch::randint(256, {7}, torch::kByte);
  expect_numbers_of({{"itself",
                      [](const at::Tensor& v) {
                        return v.view({-1, 7, 1});
                      }},
                     {"a sum", [](const at::Tensor& v) { return v + 100; }},
                     {"a difference", [](const at::Tensor& v) { return v - 100; }},
                     {"a product", [](const at::Tensor& v) { return v * v; }},
                     {"of a table", [=](const at::Tensor& v) { return v * table + table; }},
                     {"in parts",
                      [](const at::Tensor& v) {
                        return torch::cat({v.slice(1, 3), v.slice(1, 0, 3)}, 1);
                      }},
                     {"compared", [](const at::Tensor& v) { return (v > 100).to(at::kFloat); }},
                     {"chosen", [](const at::Tensor& v) { return torch::where(v > 100, v, v + v); }},
                     {"a sum of all", [](const at::Tensor& v) { return v.sum(1); }},
                     {"as ids", [](const at::Tensor& v) { return v.to(at::kLong) % 5; }}},
                    x);
}

TEST(ImportanceInputs, TruthValues) {
  torch::manual_seed(5);
  const at::Tensor x = torch::rand({3, 7}) > 0.4, numbers = torch::randn({7});
  const at::Tensor places = torch::tensor({6, 0, 3});
  expect_numbers_of({{"itself", [](const at::Tensor& v) { return v.to(at::kFloat); }},
                     {"not", [](const at::Tensor& v) { return v.logical_not().to(at::kFloat); }},
                     {"filled",
                      [=](const at::Tensor& v) {
                        return numbers.expand({v.size(0), -1}).masked_fill(v, -2);
                      }},
                     {"chosen", [=](const at::Tensor& v) { return torch::where(v, numbers, numbers * 2); }},
                     {"a product", [=](const at::Tensor& v) { return v * numbers; }},
                     {"a count", [](const at::Tensor& v) { return v.sum(1); }},
                     {"a truth", [](const at::Tensor& v) { return v.logical_not(); }},
                     {"rolled", [](const at::Tensor& v) { return v.roll(2, 1); }},
                     {"picked", [=](const at::Tensor& v) { return v.index_select(1, places); }},
                     {"twice", [](const at::Tensor& v) { return v.repeat_interleave(2, 1); }},
                     {"any", [](const at::Tensor& v) { return v.any(1).to(at::kFloat); }},
                     {"both", [](const at::Tensor& v) { return (v & v.flip(1)).to(at::kFloat); }}},
                    x);
}

/// A cast of numbers that a byte has not.
TEST(ImportanceInputs, CastsToBytesWrapAround) {
  const at::Tensor x = torch::tensor({-300, -256, -1, 0, 5, 255, 256, 1000, 70000}, at::kInt).view({1, 9});
  expect_numbers_of({{"uint8", [](const at::Tensor& v) { return v.to(at::kByte).to(at::kFloat); }}}, x);
  const torch::NoGradGuard no_grad;
  for (const at::ScalarType type : {at::kByte, at::kChar, at::kShort}) {
    const NarrowBody body = [=](const at::Tensor& v) { return v.to(type).to(at::kFloat); };
    EXPECT_TRUE(narrow_by_coreml(*captured_function(body, x), x).equal(body(x))) << type;
  }
}

}  // namespace

}  // namespace ulp::test
