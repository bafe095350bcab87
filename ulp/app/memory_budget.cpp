#include "ulp/app/memory_budget.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/graph/graph_module.h"
#include "ulp/memory/predict/predictor.h"
#include "ulp/report/format.h"

namespace ulp::app {

namespace {

constexpr const char* kWhere = "app.fit_to_budget";

std::string bytes_text(int64_t bytes) {
  return report::format_bytes(static_cast<double>(bytes));
}

/// A run and the sentences that tell how it differs from the one asked for.
struct Candidate {
  train::TrainOptions options;
  std::vector<std::string> changes;
};

/// The sizes that divide a batch, the largest first.
std::vector<int64_t> smaller_batches(int64_t batch) {
  std::vector<int64_t> sizes;
  for (int64_t size = batch / 2; size >= 1; --size) {
    if (batch % size == 0) sizes.push_back(size);
  }
  return sizes;
}

bool can_split(const BudgetJob& job, const train::TrainOptions& options) {
  return !job.keep_masters && options.master_weights() == amp::MasterWeights::fp32 &&
         options.resolved_precision().parameter_dtype == at::kBFloat16;
}

bool can_narrow(const BudgetJob& job, const train::TrainOptions& options) {
  if (job.keep_moments || options.moments == amp::MomentFormat::bf16) return false;
  return options.master_weights().has_value() || options.clip.has_value();
}

class Search {
 public:
  explicit Search(const BudgetJob& job) : job_(job) {}

  BudgetChoice run() {
    Candidate plain{.options = job_.options, .changes = {}};
    const int64_t asked = peak(plain.options);
    if (asked <= job_.budget) return {plain.options, asked, asked, {}};
    if (can_split(job_, plain.options)) split(plain);
    std::vector<Candidate> starts = {plain};
    if (can_narrow(job_, plain.options)) starts.push_back(narrowed(plain));
    for (const Candidate& start : starts) {
      if (const auto found = fit(start)) {
        return {found->options, asked, peak(found->options), found->changes};
      }
    }
    fail(kWhere, "expected a budget of at least ", bytes_text(smallest_),
         ", the smallest peak that was found, got ", bytes_text(job_.budget));
  }

 private:
  /// The candidate, or the same with the largest batch that fits.
  std::optional<Candidate> fit(const Candidate& start) {
    if (peak(start.options) <= job_.budget) return start;
    for (const int64_t batch : smaller_batches(start.options.batch)) {
      Candidate smaller = start;
      smaller.options.accumulate *= smaller.options.batch / batch;
      smaller.options.batch = batch;
      if (peak(smaller.options) > job_.budget) continue;
      smaller.changes.push_back(
          "batches of " + std::to_string(batch) + ", " + std::to_string(smaller.options.accumulate) +
          " to a step: the same mean gradient but for rounding" +
          (smaller.options.resolved_precision().parameter_dtype ? ", summed in 16 bits" : "") +
          (job_.batch_norm ? "; batch norms see the statistics of fewer samples" : "") +
          "; more calls for the same work");
      return smaller;
    }
    return std::nullopt;
  }

  void split(Candidate& candidate) {
    candidate.options.masters = amp::MasterWeights::split;
    candidate.changes.emplace_back(
        "split masters: the same fp32 weights in 2 bytes a parameter instead of 4, no cost; the bf16 "
        "parameter rounds "
        "ties away from zero");
  }

  static Candidate narrowed(Candidate candidate) {
    candidate.options.moments = amp::MomentFormat::bf16;
    candidate.changes.emplace_back(
        "bf16 moments: half the bytes of the optimizer's state; rounded at random, right in the mean");
    return candidate;
  }

  int64_t peak(const train::TrainOptions& options) {
    const std::string key =
        options.master_weights() ? word_of(*options.master_weights()) : std::string("none");
    const bool several = options.accumulate > 1;
    const std::string full = key + '/' + word_of(options.moments) + (several ? "/several" : "/one");
    auto found = predictors_.find(full);
    if (found == predictors_.end()) {
      const auto probe = [this, options](memory::RunSize size) {
        check_interrupted();
        if (job_.progress) job_.progress();
        return record_training(job_.program, options, size);
      };
      found = predictors_.emplace(full, memory::Predictor(probe, {})).first;
    }
    const int64_t bytes = found->second.peak_bytes({.batch = options.batch});
    smallest_ = std::min(smallest_, bytes);
    return bytes;
  }

  const BudgetJob& job_;
  std::map<std::string, memory::Predictor> predictors_;
  int64_t smallest_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

bool has_batch_norm(const torch::nn::Module& model) {
  if (const auto* graph = dynamic_cast<const graph::GraphModule*>(&model)) {
    return std::ranges::any_of(graph->graph().nodes(),
                               [](const auto& node) { return node->is("aten::batch_norm"); });
  }
  return std::ranges::any_of(model.modules(), [](const auto& module) {
    return module->name().find("BatchNorm") != std::string::npos;
  });
}

BudgetChoice fit_to_budget(const BudgetJob& job) {
  job.options.validate();
  const PollsInterrupts polls;
  return Search(job).run();
}

}  // namespace ulp::app
