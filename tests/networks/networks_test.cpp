// Every network through every stage. What does not work yet is listed in expected.h, and only there.
#include <gtest/gtest.h>

#include <algorithm>

#include "error_of.h"
#include "expected.h"
#include "file_bytes.h"
#include "page.h"
#include "stages.h"

namespace ulp::test {
namespace {

class Networks : public testing::TestWithParam<size_t> {};

TEST_P(Networks, GoThroughEveryStageButThoseListed) {
  const Network& network = networks()[GetParam()];
  Subject subject(network);
  for (size_t i = 0; i < kStageNames.size(); ++i) {
    const std::string what = network.name + ", " + kStageNames[i];
    const StageResult result = subject.run(static_cast<Stage>(i));
    const Missing* missing = missing_of(network.name, kStageNames[i]);
    const bool failed = result.kind == StageResult::Kind::fails;
    EXPECT_FALSE(failed && missing == nullptr) << what << ": " << result.message;
    EXPECT_FALSE(!failed && missing != nullptr) << what << " works: take it off tests/networks/expected.h";
    if (failed && missing != nullptr) EXPECT_SAYS(result.message, missing->says);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Networks, testing::Range<size_t>(0, networks().size()),
                         [](const auto& info) { return networks()[info.param].name; });

/// Adds how often it was called, which no graph can know.
struct Counting : torch::nn::Module {
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(4, 2));
  double calls = 0;
  torch::Tensor forward(const torch::Tensor& x) { return layer(x) + ++calls; }
};

TEST(Stages, FailWhereTheGraphIsNotTheModel) {
  const Network network{"counting", [] { return instance(std::make_shared<Counting>()); }, normal({{4}})};
  Subject subject(network);
  for (const Stage stage : {Stage::captured, Stage::trains})
    EXPECT_EQ(subject.run(stage).kind, StageResult::Kind::fails);
}

TEST(NetworkList, IsSortedSmallAndNamesStagesThatThereAre) {
  EXPECT_TRUE(std::ranges::is_sorted(networks(), {}, &Network::name));
  for (const Network& network : networks()) {
    int64_t count = 0;
    for (const torch::Tensor& p : network.make().root->parameters()) count += p.numel();
    EXPECT_LE(count, 50000) << network.name;
  }
  for (const auto& [network, all] : kMissing) {
    EXPECT_TRUE(std::ranges::count(networks(), network, &Network::name) == 1) << network;
    for (const Missing& missing : all) {
      EXPECT_FALSE(missing.says.empty()) << network;
      for (const std::string& stage : stages_of(missing))
        EXPECT_TRUE(std::ranges::count(kStageNames, stage) == 1) << network << ": " << stage;
    }
  }
}

TEST(NetworksPage, SaysWhatTheListSays) {
  const std::string page = file_bytes(ULP_SOURCE_DIR "/docs/networks.md");
  EXPECT_TRUE(with_networks(page) == page) << "make it again: test_networks --page docs/networks.md";
}

}  // namespace
}  // namespace ulp::test
