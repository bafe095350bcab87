#include "ulp/app/memory/memory_budget.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/graph/graph_module.h"
#include "ulp/memory/predict/predictor.h"
#include "ulp/report/format.h"

namespace ulp::app {

namespace {

constexpr const char* kFitToBudgetWhere = "app.fit_to_budget";

std::string bytes_text(int64_t bytes) {
  return report::format_bytes(static_cast<double>(bytes));
}

/// Shares of the activations that are tried, the largest first.
constexpr double kShares[] = {0.7, 0.5, 0.35, 0.25};

/// A run and the sentences that tell how it differs from the one asked for.
struct Candidate {
  train::TrainOptions options;
  double share = 1;  ///< of the activations that is kept
  std::vector<std::string> changes = {};
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

/// Formats of moments with fewer bytes than the run's, the widest first; none where LibTorch makes the step.
std::vector<amp::MomentFormat> narrower_moments(const BudgetJob& job, const train::TrainOptions& options) {
  const bool bare = options.resolved_precision().parameter_dtype && !options.master_weights();
  if (job.keep_moments || bare) return {};
  using enum amp::MomentFormat;
  const std::vector<amp::MomentFormat> all = {fp32, bf16, int8, int4};
  return {std::ranges::find(all, options.moments) + 1, all.end()};
}

const char* cost_of(amp::MomentFormat moments) {
  switch (moments) {
    case amp::MomentFormat::int8:
      return "int8 moments: a quarter of the bytes of the optimizer's momentum and moments, codes of blocks "
             "of 256 that share a scale; the same loss within 1 %, a step of the optimizer takes about a "
             "third longer";
    case amp::MomentFormat::int4:
      return "int4 moments: an eighth of the bytes of the optimizer's momentum and moments, codes of blocks "
             "of 128 that share a scale; the coarsest form, for which embeddings may want --fp32-moments";
    default:
      return "bf16 moments: half the bytes of the optimizer's state; rounded at random, right in the mean";
  }
}

class PlanSearch {
 public:
  explicit PlanSearch(const BudgetJob& job) : job_(job) {}

  BudgetChoice run() {
    Candidate plain{.options = job_.options};
    const int64_t asked = peak(plain);
    if (fits(asked)) return {plain.options, asked, asked, 1, job_.program, {}};
    if (can_split(job_, plain.options)) split(plain);
    std::vector<Candidate> starts = {plain};
    for (const amp::MomentFormat moments : narrower_moments(job_, plain.options))
      starts.push_back(narrowed(plain, moments));
    for (const Candidate& start : starts) {
      if (const auto found = fit(start))
        return {found->options, asked, peak(*found), found->share, *program_of(found->share), found->changes};
    }
    fail(kFitToBudgetWhere, "expected a budget of at least ", bytes_text(with_safety(smallest_) + job_.taken),
         ", the smallest peak that was found and 2 % of training's part of it, got ",
         bytes_text(job_.budget));
  }

 private:
  /// A prediction may lie a little below what is measured.
  static int64_t with_safety(int64_t peak) { return peak + peak / 50; }
  bool fits(int64_t peak) const { return with_safety(peak) + job_.taken <= job_.budget; }
  bool fits(const Candidate& candidate) { return fits(peak(candidate)); }

  /// The candidate itself, or what costs least of checkpointing, smaller batches, and both.
  std::optional<Candidate> fit(const Candidate& start) {
    if (fits(start)) return start;
    std::optional<Candidate> found = job_.batch_norm ? in_shares(start) : in_parts(start);
    if (!found) found = job_.batch_norm ? in_parts(start) : in_shares(start);
    const Candidate* least = found || shared_.empty() ? nullptr : &shared_.back();
    return least != nullptr ? in_parts(*least) : found;
  }

  /// With smaller batches, the largest that fits.
  std::optional<Candidate> in_parts(const Candidate& start) {
    for (const int64_t batch : smaller_batches(start.options.batch)) {
      Candidate smaller = start;
      smaller.options.accumulate *= smaller.options.batch / batch;
      smaller.options.batch = batch;
      if (!fits(smaller)) continue;
      const bool narrow = smaller.options.resolved_precision().parameter_dtype.has_value();
      smaller.changes.push_back(
          "batches of " + std::to_string(batch) + ", " + std::to_string(smaller.options.accumulate) +
          " to a step: the same mean gradient but for rounding" + (narrow ? ", summed in 16 bits" : "") +
          (job_.batch_norm ? "; batch norms see the statistics of fewer samples" : "") +
          "; more calls for the same work");
      return smaller;
    }
    return std::nullopt;
  }

  /// With activations computed again, as few as possible.
  std::optional<Candidate> in_shares(const Candidate& start) {
    shared_.clear();
    for (const double share : kShares) {
      if (!job_.checkpointed || !program_of(share)) break;
      Candidate& fewer = shared_.emplace_back(start);
      fewer.share = share;
      fewer.changes.push_back("checkpointing, activations in " + std::to_string(std::lround(100 * share)) +
                              " % of their bytes: the same gradients bit for bit; at most one more forward");
      if (fits(fewer)) return fewer;
    }
    return std::nullopt;
  }

  const TrainingProgram* program_of(double share) {
    if (share == 1) return &job_.program;
    auto found = programs_.find(share);
    if (found == programs_.end()) found = programs_.emplace(share, job_.checkpointed(share)).first;
    return found->second ? &*found->second : nullptr;
  }

  void split(Candidate& candidate) {
    candidate.options.masters = amp::MasterWeights::split;
    candidate.changes.emplace_back(
        "split masters: the same fp32 weights in 2 bytes a parameter instead of 4, no cost; the bf16 "
        "parameter rounds ties away from zero");
  }

  static Candidate narrowed(Candidate candidate, amp::MomentFormat moments) {
    candidate.options.moments = moments;
    candidate.changes.emplace_back(cost_of(moments));
    return candidate;
  }

  int64_t peak(const Candidate& candidate) {
    const train::TrainOptions& options = candidate.options;
    const auto masters = options.master_weights();
    const std::tuple key(masters ? static_cast<int>(*masters) : -1, options.moments, options.accumulate > 1,
                         candidate.share);
    auto found = predictors_.find(key);
    if (found == predictors_.end()) {
      const auto probe = [this, options, program = program_of(candidate.share)](memory::RunSize size) {
        check_interrupted();
        if (job_.progress) job_.progress();
        return record_training(*program, options, size);
      };
      found = predictors_.emplace(key, memory::Predictor(probe, {})).first;
    }
    const int64_t bytes = found->second.peak_bytes({.batch = options.batch});
    smallest_ = std::min(smallest_, bytes);
    return bytes;
  }

  const BudgetJob& job_;
  std::map<std::tuple<int, amp::MomentFormat, bool, double>, memory::Predictor> predictors_;
  std::map<double, std::optional<TrainingProgram>> programs_;  ///< by the share they keep
  std::vector<Candidate> shared_;                              ///< what in_shares() tried last
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
  return PlanSearch(job).run();
}

}  // namespace ulp::app
