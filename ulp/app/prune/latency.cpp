#include "ulp/app/prune/latency.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/report/machine.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::app {

namespace {

/// An engine with something to run on.
class EngineRunner {
 public:
  EngineRunner(const runtime::Plan& plan, const LatencyOptions& options)
      : engine_(plan, {.threads = options.threads}) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const at::Tensor state = generator.get_state();  // random inputs leave no trace in what is trained next
    for (const runtime::TensorInfo& info : engine_.inputs()) {
      tensors_.push_back(random_input(info, options.batch));
      inputs_.push_back(tensors_.back().const_data_ptr());
    }
    generator.set_state(state);
    for (const runtime::TensorInfo& info : engine_.outputs()) {
      tensors_.push_back(
          torch::empty({static_cast<int64_t>(runtime::byte_count(info, options.batch))}, torch::kByte));
      outputs_.push_back(tensors_.back().mutable_data_ptr());
    }
  }

  measure::Candidate candidate(const std::string& name) {
    return {name, [this](int64_t batch) { engine_.run(batch, inputs_, outputs_); }, engine_.threads()};
  }

 private:
  runtime::Engine engine_;
  std::vector<at::Tensor> tensors_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

runtime::Plan plan_of(const graph::GraphModule& module) {
  graph::GraphModule copy(module.graph().clone());
  copy.eval();
  return lower(copy);
}

measure::MeasureOptions measuring(const LatencyOptions& options) {
  return {.rounds = options.rounds, .round_seconds = options.round_seconds, .progress = options.progress};
}

}  // namespace

std::vector<measure::Timing> time_engines(const std::vector<const runtime::Plan*>& plans,
                                          const LatencyOptions& options) {
  std::vector<std::unique_ptr<EngineRunner>> runners;
  std::vector<measure::Candidate> candidates;
  for (const runtime::Plan* plan : plans) {
    runners.push_back(std::make_unique<EngineRunner>(*plan, options));
    candidates.push_back(runners.back()->candidate(std::to_string(candidates.size())));
  }
  return measure::time_in_turns(candidates, options.batch, measuring(options));
}

struct LatencyMeter::State {
  LatencyOptions options;
  EngineRunner reference;
  double first = 0;  // seconds of the reference in the first measurement
};

LatencyMeter::LatencyMeter(const graph::GraphModule& reference, const LatencyOptions& options)
    : state_(new State{options, EngineRunner(plan_of(reference), options)}) {}
LatencyMeter::~LatencyMeter() = default;
LatencyMeter::LatencyMeter(LatencyMeter&&) noexcept = default;
LatencyMeter& LatencyMeter::operator=(LatencyMeter&&) noexcept = default;

double LatencyMeter::operator()(const graph::GraphModule& module) {
  const LatencyOptions& options = state_->options;
  EngineRunner runner(plan_of(module), options);
  const std::vector<measure::Timing> times =
      measure::time_in_turns({state_->reference.candidate("reference"), runner.candidate("network")},
                             options.batch, measuring(options));
  if (state_->first == 0) state_->first = times[0].median;
  return times[1].median * state_->first / times[0].median;
}

prune::WidthTable measure_width_table(const prune::WidthMeasurement& what, const LatencyOptions& options) {
  std::string machine;
  for (const report::Fact& fact : report::machine_facts()) machine += fact.name + ": " + fact.value + "; ";
  std::optional<LatencyMeter> meter;  // the first network is the reference of all
  const auto seconds = [&](const graph::GraphModule& module) {
    if (!meter) meter.emplace(module, options);
    return (*meter)(module);
  };
  return prune::measure_widths(seconds, what, machine);
}

}  // namespace ulp::app
