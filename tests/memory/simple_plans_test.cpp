// Plans that need no measurement, and the checks of plans.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>

#include "error_of.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/memory/checkpoint/plan.h"

namespace {

using ulp::memory::CheckpointPlan;

std::shared_ptr<ulp::graph::GraphModule> ten_layers() {
  torch::nn::Sequential layers;
  for (int i = 0; i < 5; ++i) {
    layers->push_back(torch::nn::Linear(4, 4));
    layers->push_back(torch::nn::ReLU());
  }
  return ulp::capture(layers, {torch::randn({2, 4})});
}

std::vector<const ulp::graph::Node*> calls_of(const ulp::graph::Graph& graph) {
  std::vector<const ulp::graph::Node*> calls;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == ulp::graph::Node::Kind::call) calls.push_back(node.get());
  }
  return calls;
}

TEST(SimplePlans, EveryKCallsAreASegmentButTheLastOnes) {
  const auto module = ten_layers();
  const auto calls = calls_of(module->graph());
  ASSERT_GE(calls.size(), 10u);
  const CheckpointPlan plan = ulp::memory::plan_every(module->graph(), 3);
  ASSERT_EQ(plan.segments.size(), (calls.size() - 1) / 3);
  EXPECT_EQ(plan.segments[1].first, calls[3]);
  EXPECT_EQ(plan.segments[1].last, calls[5]);
  EXPECT_EQ(plan.segments[2].last, calls[8]);
  EXPECT_ERROR(ulp::memory::plan_every(module->graph(), 0), "at least 1");
}

TEST(SimplePlans, ModulesAreNamedByTheirPaths) {
  const auto module = ten_layers();
  const auto calls = calls_of(module->graph());
  const CheckpointPlan plan = ulp::memory::plan_modules(module->graph(), {"4", "2"});
  ASSERT_EQ(plan.segments.size(), 2u);
  const std::vector<std::string> paths = {"4", "2"};
  for (size_t i = 0; i < 2; ++i) {
    const auto first = std::ranges::find(calls, paths[i], &ulp::graph::Node::scope);
    const auto last = std::ranges::find(calls.rbegin(), calls.rend(), paths[i], &ulp::graph::Node::scope);
    EXPECT_EQ(plan.segments[i].first, *first);
    EXPECT_EQ(plan.segments[i].last, *last);
  }
  EXPECT_ERROR(ulp::memory::plan_modules(module->graph(), {"encoder"}), "'encoder'");
}

TEST(SimplePlans, OverlapsAndStrangersAreRefused) {
  const auto module = ten_layers(), other = ten_layers();
  const auto calls = calls_of(module->graph());
  const auto check = [&](const CheckpointPlan& plan) { ulp::memory::check_plan(module->graph(), plan); };
  EXPECT_ERROR(check({{{calls[0], calls[4]}, {calls[3], calls[6]}}}), "overlaps");
  EXPECT_ERROR(check({{{calls[4], calls[0]}}}), "before its last");
  EXPECT_ERROR(check({{{calls_of(other->graph())[0], calls[4]}}}), "another node");
  EXPECT_ERROR(check({{{calls[0], calls[2], {calls[5]->output()}}}}), "to be kept");
  EXPECT_NO_THROW(check({{{calls[0], calls[4]}, {calls[1], calls[2]}, {calls[5], calls[6]}}}));
}

}  // namespace
