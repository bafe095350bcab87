#include "ulp/app/memory/memory.h"

#include <torch/nn/module.h>

#include <algorithm>

#include "ulp/app/train/checkpointed.h"
#include "ulp/app/train/training_probe.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/train/fp8_task.h"

namespace ulp::app {

namespace {

constexpr const char* kMemoryWhere = "app.memory";

/// Above so many parameters a run takes seconds, and fewer and shorter texts are looked at.
constexpr int64_t kLarge = 30'000'000;

int64_t count_parameters(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

/// Three lengths up to the longest that is asked for, or to where the quadratic shows.
std::vector<int64_t> looked_at(const std::vector<int64_t>& lengths, bool large) {
  if (lengths.size() == 1) return lengths;
  constexpr int64_t kShortest = 16, kEnough = 256, kEnoughOfLarge = 128;
  const int64_t most = std::min(lengths.back(), large ? kEnoughOfLarge : kEnough);
  if (most < kShortest) return {most, most + 1, most + 2};
  return {most / 4, most / 2, most};
}

/// A network that is trained in fp32 is made once: it is the same after each run but for its weights.
class Probes {
 public:
  Probes(const Workload& model, const MemoryQuestion& question, int64_t length)
      : model_(model),
        options_(question.options),
        fp8_(question.fp8),
        shares_(!options_.resolved_precision().parameter_dtype) {
    first_ = model_.make();
    model_.expect_trains(*first_->module);
    parameters_ = count_parameters(*first_->module);
    if (!shares_) first_.reset();
    choice_.emplace([this](memory::RunSize of) { return task(of); }, options_,
                    memory::RunSize{.batch = options_.batch, .length = length}, question.plan);
  }

  int64_t parameters() const { return parameters_; }

  memory::Recording operator()(memory::RunSize size) const {
    check_interrupted();
    return record_training(planned([this](memory::RunSize of) { return task(of); }), options_, size);
  }

  /// Two real steps, of a network of its own.
  int64_t measure(memory::RunSize size) const {
    return measure_training(planned([this](memory::RunSize of) { return in_fp8(model_.task(of)); }), options_,
                            size);
  }

 private:
  TrainingProgram planned(MakeTask make) const {
    return {.make = [this, make = std::move(make)](memory::RunSize of) {
      train::Task made = make(of);
      choice_->apply(made);
      return made;
    }};
  }

  train::Task in_fp8(train::Task task) const {
    return fp8_ ? train::fp8_task(std::move(task), *fp8_) : std::move(task);
  }

  train::Task task(memory::RunSize size) const {
    if (!shares_) return in_fp8(model_.task(size));
    Workload shared = model_;
    shared.make = [this] {
      for (at::Tensor& parameter : first_->module->parameters()) parameter.mutable_grad().reset();
      return *first_;
    };
    return in_fp8(shared.task(size));
  }

  const Workload& model_;
  train::TrainOptions options_;
  std::optional<amp::Fp8Recipe> fp8_;
  bool shares_;
  int64_t parameters_ = 0;
  std::optional<Network> first_;
  std::optional<CheckpointChoice> choice_;
};

struct Asked {
  int64_t length = 0;
  std::vector<int64_t> lengths;  ///< growing, `length` among them
};

Asked asked_lengths(const Workload& model, const MemoryQuestion& question) {
  if (model.kind == NetworkKind::image) {
    if (question.length != 0 || !question.lengths.empty())
      fail(kMemoryWhere, "expected no lengths for ", model.name, ", which takes images");
    return {.length = 0, .lengths = {0}};
  }
  Asked asked{.length = question.length, .lengths = question.lengths};
  if (asked.length == 0) asked.length = asked.lengths.empty() ? usual_length(model) : asked.lengths[0];
  asked.lengths.push_back(asked.length);
  std::ranges::sort(asked.lengths);
  asked.lengths.erase(std::unique(asked.lengths.begin(), asked.lengths.end()), asked.lengths.end());
  if (asked.lengths.front() < 1 || asked.lengths.back() > model.max_length)
    fail(kMemoryWhere, "expected lengths from 1 to ", model.max_length, " for ", model.name, ", got ",
         asked.lengths.front() < 1 ? asked.lengths.front() : asked.lengths.back());
  return asked;
}

Fit fit_of(memory::Predictor& predictor, int64_t budget, int64_t length) {
  Fit fit{.length = length, .batch = predictor.largest_batch(budget, length)};
  fit.peak_bytes = predictor.peak_bytes({std::max<int64_t>(fit.batch, 1), length});
  return fit;
}

}  // namespace

void check_question(const Workload& model, const MemoryQuestion& question) {
  question.options.validate();
  question.plan.validate();
  if (question.plan.offload_activations != memory::StorageLocation::memory)
    fail(kMemoryWhere,
         "expected activations in memory, got them in a file: how much of them is on its way there, up to 64 "
         "MiB, "
         "depends on its speed");
  if (question.fp8 && !question.options.precision->fp8)
    fail(kMemoryWhere, "expected an fp8 precision beside an fp8 recipe, got ",
         question.options.precision.name());
  asked_lengths(model, question);
}

MemoryAnswer ask_memory(const Workload& model, const MemoryQuestion& question) {
  const PollsInterrupts polls;
  check_question(model, question);
  const Asked asked = asked_lengths(model, question);
  const Probes probes(model, question, asked.length);
  const bool large = probes.parameters() > kLarge;
  const bool any_length = question.budget && model.kind != NetworkKind::image;
  std::vector<int64_t> seen = asked.lengths;
  if (any_length) seen.push_back(model.max_length);
  memory::Predictor predictor(
      std::cref(probes), {.batches = large ? std::vector<int64_t>{1, 2, 4} : std::vector<int64_t>{1, 2, 4, 8},
                          .lengths = looked_at(seen, large),
                          .progress = question.progress});
  const memory::RunSize size{.batch = question.options.batch, .length = asked.length};
  MemoryAnswer answer{.model = model.name,
                      .options = question.options,
                      .plan = question.plan,
                      .prediction = predictor.at(size),
                      .budget = question.budget,
                      .most_length = model.max_length};
  if (question.budget) {
    for (const int64_t length : asked.lengths)
      answer.fits.push_back(fit_of(predictor, *question.budget, length));
    if (any_length) answer.longest = predictor.largest_length(*question.budget, size.batch, model.max_length);
  }
  answer.runs = predictor.runs();
  answer.slack = predictor.slack();
  if (question.prove) {
    check_interrupted();
    answer.measured_bytes = probes.measure(size);
  }
  return answer;
}

}  // namespace ulp::app
