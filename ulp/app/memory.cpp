#include "ulp/app/memory.h"

#include <torch/nn/module.h>

#include <algorithm>

#include "ulp/app/training_probe.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"

namespace ulp::app {

namespace {

constexpr const char* kWhere = "app.memory";

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
  Probes(const TrainedModel& model, const train::TrainOptions& options)
      : model_(model), options_(options), shares_(!options.resolved_precision().parameter_dtype) {
    first_ = model_.make();
    parameters_ = count_parameters(*first_->module);
    if (!shares_) first_.reset();
  }

  int64_t parameters() const { return parameters_; }

  memory::Recording operator()(memory::RunSize size) const {
    check_interrupted();
    return record_training({.make = [this](memory::RunSize of) { return task(of); }}, options_, size);
  }

 private:
  train::Task task(memory::RunSize size) const {
    if (!shares_) return model_.task(size);
    TrainedModel shared = model_;
    shared.make = [this] {
      for (at::Tensor& parameter : first_->module->parameters()) parameter.mutable_grad().reset();
      return *first_;
    };
    return shared.task(size);
  }

  const TrainedModel& model_;
  train::TrainOptions options_;
  bool shares_;
  int64_t parameters_ = 0;
  std::optional<Network> first_;
};

struct Asked {
  int64_t length = 0;
  std::vector<int64_t> lengths;  ///< growing, `length` among them
};

Asked asked_lengths(const TrainedModel& model, const MemoryQuestion& question) {
  if (model.kind == NetworkKind::image) {
    if (question.length != 0 || !question.lengths.empty())
      fail(kWhere, "expected no lengths for ", model.name, ", which takes images");
    return {.length = 0, .lengths = {0}};
  }
  Asked asked{.length = question.length, .lengths = question.lengths};
  if (asked.length == 0) asked.length = asked.lengths.empty() ? usual_length(model) : asked.lengths[0];
  asked.lengths.push_back(asked.length);
  std::ranges::sort(asked.lengths);
  asked.lengths.erase(std::unique(asked.lengths.begin(), asked.lengths.end()), asked.lengths.end());
  if (asked.lengths.front() < 1 || asked.lengths.back() > model.max_length)
    fail(kWhere, "expected lengths from 1 to ", model.max_length, " for ", model.name, ", got ",
         asked.lengths.front() < 1 ? asked.lengths.front() : asked.lengths.back());
  return asked;
}

Fit fit_of(memory::Predictor& predictor, int64_t budget, int64_t length) {
  Fit fit{.length = length, .batch = predictor.largest_batch(budget, length)};
  fit.peak_bytes = predictor.peak_bytes({std::max<int64_t>(fit.batch, 1), length});
  return fit;
}

}  // namespace

void check_question(const TrainedModel& model, const MemoryQuestion& question) {
  question.options.validate();
  asked_lengths(model, question);
}

MemoryAnswer ask_memory(const TrainedModel& model, const MemoryQuestion& question) {
  const PollsInterrupts polls;
  question.options.validate();
  const Asked asked = asked_lengths(model, question);
  const Probes probes(model, question.options);
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
    answer.measured_bytes = measure_training({.make = [&](memory::RunSize of) { return model.task(of); }},
                                             question.options, size);
  }
  return answer;
}

}  // namespace ulp::app
