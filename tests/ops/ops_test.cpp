// The page of ops says what is so, and its samples are calls of the ops that they name.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "graph/same.h"
#include "page.h"
#include "trial.h"
#include "ulp/graph/graph.h"

namespace ulp::test {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(OpsPage, SaysWhatIsSo) {
  std::ostringstream held;
  held << std::ifstream(std::string(ULP_SOURCE_DIR) + "/docs/ops.md").rdbuf();
  if (!contains(held.str(), made_with())) GTEST_SKIP() << "the page is of another LibTorch: " << made_with();
  const std::vector<std::string> page = lines_of(held.str()), now = lines_of(ops_page());
  for (size_t i = 0; i < std::min(page.size(), now.size()); ++i) {
    ASSERT_EQ(page[i], now[i]) << "docs/ops.md, line " << i + 1 << ": run test_ops --page docs/ops.md";
  }
  EXPECT_EQ(page.size(), now.size()) << "run test_ops --page docs/ops.md";
}

TEST(OpSamples, CallTheOpsThatTheyName) {
  const std::vector<std::string> core = core_ops();
  EXPECT_GT(core.size(), 150u);
  for (const Sample& sample : samples()) {
    EXPECT_TRUE(std::ranges::count(core, sample.op) == 1) << sample.op << " is not tagged as core";
    if (sample.reach == Reach::exported) continue;
    EXPECT_TRUE(reaches_its_op(sample)) << sample.op << ": " << sample.call;
  }
}

TEST(OpTrials, FailWhereTheyShould) {
  static int calls = 0;
  const Sample changing = {"aten::add.Scalar", Reach::directly, Given::rows, "x + ++calls",
                           [](SampleLayer&, const at::Tensor& x) { return x + ++calls; }};
  EXPECT_EQ(try_call(changing).captured.outcome, Ending::fails);
  const Sample other = {"aten::mul.Tensor", Reach::directly, Given::rows, "x + 1",
                        [](SampleLayer&, const at::Tensor& x) { return x + 1; }};
  EXPECT_FALSE(reaches_its_op(other));
  const Sample refused = {"aten::flip", Reach::directly, Given::sequence, "x.flip({0})",
                          [](SampleLayer&, const at::Tensor& x) { return x.flip({0}); }};
  const Trial trial = try_call(refused);
  EXPECT_EQ(trial.captured.outcome, Ending::works);
  EXPECT_EQ(trial.f32.outcome, Ending::fails);
  EXPECT_TRUE(contains(trial.f32.why, "batch")) << trial.f32.why;
}

}  // namespace
}  // namespace ulp::test
