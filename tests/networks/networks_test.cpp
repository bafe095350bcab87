// Every network through every stage. What does not work yet is listed in expected.h, and only there.
#include <gtest/gtest.h>

#include <algorithm>

#include "expected.h"
#include "stages.h"

namespace ulp::test {
namespace {

class Networks : public testing::TestWithParam<size_t> {};

TEST_P(Networks, GoThroughEveryStageButThoseListed) {
  const Network& network = networks()[GetParam()];
  const std::vector<std::string> missing = missing_stages(network.name);
  Subject subject(network);
  for (size_t i = 0; i < kStageNames.size(); ++i) {
    const std::string name = kStageNames[i];
    const StageResult result = subject.run(static_cast<Stage>(i));
    const bool listed = std::ranges::find(missing, name) != missing.end();
    const bool failed = result.kind == StageResult::Kind::fails;
    EXPECT_FALSE(failed && !listed) << network.name << ", " << name << ": " << result.message;
    EXPECT_FALSE(!failed && listed) << network.name << ", " << name
                                    << " works: take it off tests/networks/expected.h";
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
  for (const auto& [network, stages] : kMissing) {
    EXPECT_TRUE(std::ranges::count(networks(), network, &Network::name) == 1) << network;
    for (const std::string& stage : missing_stages(network))
      EXPECT_TRUE(std::ranges::count(kStageNames, stage) == 1) << network << ": " << stage;
  }
}

}  // namespace
}  // namespace ulp::test
