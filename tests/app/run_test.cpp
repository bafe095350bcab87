// What `ulp run` takes from a file, and what it refuses.
#include "ulp/app/run/run.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <limits>

#include "error_of.h"
#include "temporary_folder.h"
#include "ulp/base/error.h"
#include "ulp/io/safetensors.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::app {
namespace {

class RunFile : public ::testing::Test {
 protected:
  /// An engine file that takes `times` rows of 4 numbers for each item, and has their ReLU.
  std::filesystem::path rows_engine(int64_t times) const {
    runtime::Plan plan;
    for (const char* name : {"x", "y"})
      plan.tensors.push_back({.name = name, .shape = {runtime::kBatch, 4}, .times = times});
    plan.steps.push_back({.op = runtime::Op::relu,
                          .name = "relu",
                          .inputs = {0},
                          .output = 1,
                          .attributes = runtime::ActivationAttributes{Activation::relu}});
    plan.inputs = {0};
    plan.outputs = {1};
    plan.save(folder_ / "rows.ulp");
    return folder_ / "rows.ulp";
  }
  std::filesystem::path file_of(const at::Tensor& x) const {
    io::save_tensors(folder_ / "x.safetensors", {{"x", x}});
    return folder_ / "x.safetensors";
  }

  test::TemporaryFolder folder_;
};

TEST_F(RunFile, TakesAsManyRowsAsTheItemsHave) {
  torch::manual_seed(1);
  for (const int64_t times : {1, 3}) {
    const auto engine = rows_engine(times).string();
    for (const int64_t batch : {1, 2, 5}) {
      const at::Tensor x = at::randn({times * batch, 4});
      const auto outputs = run_file({.model = engine, .input = file_of(x).string()});
      ASSERT_EQ(outputs.size(), 1U);
      EXPECT_TRUE(outputs[0].value.equal(x.relu())) << times << ' ' << batch;
      EXPECT_EQ(run_file({.model = engine, .count = batch})[0].value.size(0), times * batch);
    }
  }
}

TEST_F(RunFile, RefusesRowsThatMakeNoItems) {
  const auto engine = rows_engine(3).string();
  const auto said = [&](std::vector<int64_t> sizes) {
    const std::string input = file_of(at::zeros(sizes)).string();
    return test::error_of([&] { run_file({.model = engine, .input = input}); });
  };
  EXPECT_SAYS(said({7, 4}), "[app.run] expected 'x' of shape [6, 4], got [7, 4] in '");
  EXPECT_SAYS(said({2, 4}), "[app.run] expected 'x' of shape [3, 4], got [2, 4] in '");
  EXPECT_SAYS(said({0, 4}), "[app.run] expected 'x' of shape [3, 4], got [0, 4] in '");
  EXPECT_SAYS(said({6, 5}), "[app.run] expected 'x' of shape [6, 4], got [6, 5] in '");
  EXPECT_SAYS(said({3}), "[app.run] expected 'x' of shape [3, 4], got [3] in '");
}

/// A float64 that float32 does not hold is none of the finite numbers that a run asks for.
TEST_F(RunFile, RefusesNumbersThatBecomeInfinite) {
  const auto engine = rows_engine(1).string();
  const auto input = file_of(at::full({2, 4}, 1e300, at::kDouble)).string();
  EXPECT_SAYS(test::error_of([&] { run_file({.model = engine, .input = input}); }),
              "expected finite numbers in 'x', got 8 NaN or inf");
  const auto allowed = run_file({.model = engine, .input = input, .allow_nonfinite = true});
  EXPECT_EQ(allowed[0].value[0][0].item<float>(), std::numeric_limits<float>::infinity());
  EXPECT_EQ(run_file({.model = engine, .input = file_of(at::full({2, 4}, 3, at::kDouble)).string()})[0]
                .value.sum()
                .item<float>(),
            24);
}

/// Arrays of NumPy, as it writes them: .npy holds the input whatever its name, .npz has it by name or alone.
TEST_F(RunFile, TakesArraysOfNumPy) {
  const auto engine = rows_engine(1).string();
  const at::Tensor x = at::arange(8, at::kFloat).reshape({2, 4}) - 3;
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }";
  header.resize(117, ' ');
  std::string file("\x93NUMPY\x01\x00\x76\x00", 10);
  file += header + '\n' + std::string(static_cast<const char*>(x.const_data_ptr()), x.nbytes());
  std::ofstream(folder_ / "rows.npy", std::ios::binary) << file;
  EXPECT_TRUE(run_file({.model = engine, .input = (folder_ / "rows.npy").string()})[0].value.equal(x.relu()));
  std::filesystem::resize_file(folder_ / "rows.npy", 100);
  EXPECT_SAYS(test::error_of([&] { run_file({.model = engine, .input = (folder_ / "rows.npy").string()}); }),
              "rows.npy");
  // Two arrays, of which none has the input's name.
  const std::string arrays = std::string(ULP_SOURCE_DIR) + "/tests/golden/numpy/arrays.npz";
  EXPECT_SAYS(test::error_of([&] { run_file({.model = engine, .input = arrays}); }),
              "expected a tensor 'x' in '" + arrays + "'");
}

}  // namespace
}  // namespace ulp::app
