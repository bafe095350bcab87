#include "ulp/app/prune/prune_metrics.h"

#include <set>
#include <utility>

#include "ulp/app/prune/latency.h"
#include "ulp/app/quantize/plan_metrics.h"
#include "ulp/lower/lower.h"
#include "ulp/prune/structured/select.h"

namespace ulp::app {

namespace {

/// Elements of the parameters that are not zero, shared ones once.
int64_t count_nonzero(const graph::GraphModule& model) {
  int64_t nonzero = 0;
  std::set<const void*> seen;
  for (const at::Tensor& parameter : model.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second)
      nonzero += parameter.count_nonzero().item<int64_t>();
  }
  return nonzero;
}

}  // namespace

void PruneFigures::show(const Stage& stage) const {
  if (request_.progress) request_.progress(stage);
}

std::optional<train::Accuracy> PruneFigures::accuracy(const std::string& title,
                                                      const runtime::Plan& plan) const {
  if (!request_.test_batches) return std::nullopt;
  const std::unique_ptr<train::BatchStream> batches = request_.test_batches();
  return accuracy_of(plan, *batches, request_.threads, [&](int64_t done) {
    show({title, request_.unit, done, batches->samples()});
  });
}

void PruneFigures::add_state(const std::string& name, graph::GraphModule& model) {
  const prune::ModelSize size = prune::size_of(model.graph());
  plans_.push_back(lower(model));
  outcome_.states.push_back({.name = name,
                             .accuracy = accuracy("evaluate " + name, plans_.back()),
                             .parameters = size.parameters,
                             .nonzero = count_nonzero(model),
                             .macs = size.macs,
                             .bytes = weight_bytes(plans_.back())});
}

void PruneFigures::add_parameters(const graph::Graph& before, const graph::Graph& after) {
  for (const auto& [name, attribute] : before.attributes()) {
    if (attribute.kind != graph::Attribute::Kind::parameter || attribute.tensor.dim() < 2) continue;
    const graph::Attribute* now = after.find_attribute(name);
    if (now == nullptr) continue;
    outcome_.parameters.push_back(
        {name, now->tensor.count_nonzero().item<int64_t>(), attribute.tensor.numel()});
  }
}

void PruneFigures::measure_latency() {
  PrunedState &dense = outcome_.states.front(), &last = outcome_.states.back();
  for (const int64_t batch : {1, 16}) {
    const auto progress = [&](int64_t done, int64_t total) {
      show({"measure latency", "round", done, total});
    };
    const std::vector<measure::Timing> times =
        time_engines({&plans_.front(), &plans_.back()}, {.batch = batch,
                                                         .threads = request_.threads,
                                                         .rounds = 7,
                                                         .round_seconds = 0.1,
                                                         .progress = progress});
    (batch == 1 ? dense.one : dense.sixteen) = times.front();
    (batch == 1 ? last.one : last.sixteen) = times.back();
  }
}

}  // namespace ulp::app
