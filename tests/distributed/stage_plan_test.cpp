// Cuts of a graph by time and by memory, from costs that are made up, and what placed stages really need.
#include "ulp/distributed/stage_plan.h"

#include <torch/torch.h>

#include "error_of.h"
#include "even_stages.h"
#include "in_ranks.h"
#include "ulp/distributed/pipeline.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/measure/memory_meter.h"
#include "ulp/memory/checkpoint/costs.h"

namespace {

using namespace ulp;
using distributed::StagePlan;
namespace nn = torch::nn;

constexpr int64_t kMib = 1 << 20;

/// Six layers of `width`: six calls, each with a weight.
std::shared_ptr<graph::GraphModule> captured_stack(int64_t width, int64_t batch) {
  torch::manual_seed(2);
  nn::Sequential net;
  for (int i = 0; i < 6; ++i) net->push_back(nn::Linear(nn::LinearOptions(width, width).bias(false)));
  auto model = ulp::capture(net, {torch::randn({batch, width})});
  graph::canonicalize(model->graph());
  model->recompile();
  return model;
}

memory::Costs costs_of(const graph::Graph& graph, const std::vector<double>& seconds) {
  memory::Costs costs;
  const auto calls = test::calls_of(graph);
  EXPECT_EQ(calls.size(), seconds.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    costs.nodes[calls[i]].seconds = seconds[i];
    costs.bytes[calls[i]->output()] = 1000;
  }
  return costs;
}

/// The number of the call that each stage begins with.
std::vector<int64_t> begins_of(const graph::Graph& graph, const StagePlan& plan) {
  const auto calls = test::calls_of(graph);
  std::vector<int64_t> begins;
  for (const auto& stage : plan.stages)
    begins.push_back(std::ranges::find(calls, stage.first) - calls.begin());
  return begins;
}

using Begins = std::vector<int64_t>;

TEST(StagePlan, SlowestStageTakesTheLeastTime) {
  const auto model = captured_stack(4, 2);
  const graph::Graph& graph = model->graph();
  const auto begins = [&](const std::vector<double>& seconds, int stages) {
    const StagePlan plan = distributed::balance_stages(graph, costs_of(graph, seconds), stages);
    distributed::check_stages(graph, plan);
    return begins_of(graph, plan);
  };
  EXPECT_EQ(begins({1, 1, 1, 1, 1, 1}, 2), (Begins{0, 3}));
  EXPECT_EQ(begins({1, 1, 1, 1, 1, 1}, 6), (Begins{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(begins({9, 1, 1, 1, 1, 1}, 2), (Begins{0, 1}));
  EXPECT_EQ(begins({1, 1, 1, 9, 1, 1}, 3), (Begins{0, 3, 4}));
  EXPECT_EQ(begins({1, 2, 3, 4, 5, 6}, 1), (Begins{0}));
}

TEST(StagePlan, AmongEqualTimesTheFewestBytesCross) {
  const auto model = captured_stack(4, 2);
  const graph::Graph& graph = model->graph();
  memory::Costs costs = costs_of(graph, {1, 1, 0, 0, 1, 1});
  costs.bytes[test::calls_of(graph)[2]->output()] = 10;
  EXPECT_EQ(begins_of(graph, distributed::balance_stages(graph, costs, 2)), (Begins{0, 3}));
}

TEST(StagePlan, BudgetsSayWhatIsMissing) {
  const auto model = captured_stack(256, 2);  // 256 KiB a layer; with gradient and Adam 1 MiB
  const graph::Graph& graph = model->graph();
  const memory::Costs costs = costs_of(graph, {1, 1, 1, 1, 1, 1});
  const auto place = [&](const std::vector<int64_t>& budgets) {
    return distributed::assign_stages(graph, costs, budgets);
  };
  const int64_t layers = kMib, rest = kMib / 2;  // what is beside the layers: less than half of one
  EXPECT_EQ(begins_of(graph, place({9 * layers, 9 * layers})), (Begins{0, 3}));
  EXPECT_EQ(begins_of(graph, place({2 * layers + rest, 4 * layers + rest})), (Begins{0, 2}));
  EXPECT_EQ(begins_of(graph, place({4 * layers + rest, layers + rest, layers + rest})), (Begins{0, 4, 5}));
  const std::string text = test::error_of([&] { place({2 * layers + rest, 2 * layers + rest}); });
  EXPECT_SAYS(text, "on device 1 for what the others leave over, from 2 on: ");
  EXPECT_SAYS(text, " bytes are missing");
  const StagePlan all = place({int64_t{1} << 40});
  const auto missing = test::error_of([&] { place({all.stages[0].bytes - 7}); });
  EXPECT_SAYS(missing, ": 7 bytes are missing");
  EXPECT_ERROR(place({layers / 2, 9 * layers}), "on device 0 for 0: ");
  EXPECT_ERROR(place({}), "expected from 1 to 6 stages, as many as the graph has calls, got 0");
  EXPECT_ERROR(place(std::vector<int64_t>(7, kMib)), "got 7");
}

TEST(StagePlan, ChecksThatStagesAreAllCalls) {
  const auto model = captured_stack(4, 2);
  const graph::Graph& graph = model->graph();
  const auto calls = test::calls_of(graph);
  const auto check = [&](std::vector<distributed::Stage> stages) {
    distributed::check_stages(graph, {std::move(stages)});
  };
  check({{calls[0], calls[5]}});
  EXPECT_ERROR(check({{calls[0], calls[1]}, {calls[3], calls[5]}}),
               "expected a stage from 2 on, got one from 3");
  EXPECT_ERROR(check({{calls[0], calls[1]}, {calls[2], calls[4]}}), "expected the last stage to end with 5");
  EXPECT_ERROR(check({{calls[0], nullptr}}), "");
}

TEST_IN_RANKS(2, StagePlan, PlacedStagesNeedWhatWasPredicted) {
  const auto group = test::rank_group();
  const int64_t width = 512, batch = 4 * 512;
  auto model = captured_stack(width, batch / 4);
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({batch, width}), y = torch::randn({batch, width});
  StagePlan plan;
  if (group->rank() == 0) {
    const auto costs = memory::measure_costs(*model, {x.narrow(0, 0, batch / 4)});
    plan = distributed::assign_stages(model->graph(), costs, {20 * kMib, 40 * kMib});
  }
  plan = distributed::share_stages(*group, model->graph(), plan);
  const int64_t predicted = plan.stages[static_cast<size_t>(group->rank())].bytes;
  EXPECT_LE(predicted, (group->rank() + 1) * 20 * kMib);
  distributed::Pipeline pipeline(*model, plan, group, {.micro_batches = 4});
  int64_t parameters = 0;
  for (const at::Tensor& parameter : pipeline.own_parameters()) parameters += parameter.nbytes();
  measure::MemoryMeter meter;
  torch::optim::Adam optimizer(pipeline.own_parameters());
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    pipeline.step({x}, y,
                  [](const at::Tensor& out, const at::Tensor& to) { return torch::mse_loss(out, to); });
    optimizer.step();
  }
  const int64_t peak = meter.peak_bytes() + parameters;
  EXPECT_LE(static_cast<double>(peak), 1.1 * static_cast<double>(predicted)) << "rank " << group->rank();
  EXPECT_GE(static_cast<double>(peak), 0.7 * static_cast<double>(predicted)) << "rank " << group->rank();
}

}  // namespace
