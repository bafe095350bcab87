// A training step of BERT under checkpoint plans: the peak of its activations, and its time beside that of a step
// without a plan. Steps take turns; the median is printed. BERT-base, 16 texts of 128 tokens, budgets of a half and more:
//   checkpoint_bench [layers [batch [length [fp32|bf16 [turns]]]]]
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/measure/memory_meter.h"
#include "ulp/memory/checkpoint/checkpoint.h"
#include "ulp/memory/checkpoint/costs.h"
#include "ulp/models/bert.h"

namespace {

using ulp::graph::GraphModule;
using ulp::memory::CheckpointPlan;

struct Step {
  int64_t peak = 0;
  double seconds = 0;
};

/// Forward and backward; the parameters have gradients already.
Step run_step(GraphModule& model, const torch::Tensor& tokens, const torch::Tensor& targets, bool bf16) {
  const auto start = std::chrono::steady_clock::now();
  const ulp::measure::MemoryMeter meter;
  torch::Tensor loss;
  {
    const ulp::amp::Autocast autocast(torch::kCPU, torch::kBFloat16, bf16);
    loss = torch::cross_entropy_loss(model.forward(tokens).to(torch::kFloat), targets);
  }
  loss.backward();
  return {meter.peak_bytes(),
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

struct Way {
  std::string name;
  CheckpointPlan plan;
  int64_t budget = 0;  ///< 0: none
  std::vector<double> seconds = {};
  int64_t peak = 0;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int64_t other) { return argc > i ? std::atoll(argv[i]) : other; };
  ulp::models::BertConfig config = ulp::models::BertConfig::base();
  config.layers = number(1, config.layers);
  const int64_t batch = number(2, 16), length = number(3, 128), turns = number(5, 3);
  const bool bf16 = argc > 4 && std::string(argv[4]) == "bf16";
  torch::manual_seed(1);
  const auto bert = ulp::models::make_bert(config);
  bert->train();
  const auto model = ulp::capture(bert, {torch::randint(1, config.vocab_size, {2, length})});
  model->train();
  const torch::Tensor tokens = torch::randint(1, config.vocab_size, {batch, length});
  const torch::Tensor targets = torch::randint(0, config.num_classes, {batch});
  for (torch::Tensor& parameter : model->parameters())
    parameter.mutable_grad() = torch::zeros_like(parameter);

  const int64_t whole = run_step(*model, tokens, targets, bf16).peak;
  ulp::memory::Costs costs;
  {
    const ulp::amp::Autocast autocast(torch::kCPU, torch::kBFloat16, bf16);
    costs = ulp::memory::measure_costs(*model, {tokens});
  }
  const auto& graph = model->graph();
  costs.margin = std::max<int64_t>(0, whole - ulp::memory::peak_without_plan(graph, costs));
  std::vector<Way> ways = {{"no plan", {}}, {"sqrt", ulp::memory::plan_sqrt(graph)}};
  for (const double share : {0.75, 0.5, 0.35}) {
    const auto budget = static_cast<int64_t>(share * static_cast<double>(whole));
    const std::string name = "budget " + std::to_string(static_cast<int>(100 * share)) + " %";
    try {
      ways.push_back({name, ulp::memory::plan_for_budget(graph, costs, budget), budget});
    } catch (const ulp::Error& error) {
      std::printf("%s: %s\n", name.c_str(), error.what());
    }
  }
  for (int64_t turn = 0; turn < turns; ++turn) {
    for (Way& way : ways) {
      ulp::memory::checkpoint(*model, way.plan);
      const Step step = run_step(*model, tokens, targets, bf16);
      way.seconds.push_back(step.seconds);
      way.peak = std::max(way.peak, step.peak);
    }
  }
  std::printf("%-14s %12s %12s %9s %8s\n", "plan", "peak MiB", "budget MiB", "seconds", "ratio");
  for (const Way& way : ways) {
    std::printf("%-14s %12.1f %12.1f %9.2f %8.2f\n", way.name.c_str(), static_cast<double>(way.peak) / 0x1p20,
                static_cast<double>(way.budget) / 0x1p20, median(way.seconds),
                median(way.seconds) / median(ways[0].seconds));
  }
  return 0;
}
