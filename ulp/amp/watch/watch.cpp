#include "ulp/amp/watch/watch.h"

#include <torch/nn/module.h>

#include <cmath>
#include <cstdio>
#include <sstream>

#include "ulp/amp/fp8/fp8_layers.h"
#include "ulp/amp/watch/watch_fp8.h"
#include "ulp/amp/watch/watch_ops.h"
#include "ulp/amp/watch/watch_tensor.h"
#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/graph/capture/scope.h"
#include "ulp/report/format.h"

namespace ulp::amp {

namespace {

constexpr size_t kMostNonFinite = 1000;

/// What is wrong with the gradients, read now, or with the loss.
std::string cause_in(const NamedTensors& parameters, uint64_t cut, double loss) {
  int64_t bad = 0, all = 0;
  std::ostringstream out;
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor gradient = parameter.grad();
    if (!is_countable(gradient)) continue;
    ++all;
    const at::Tensor block = countable_block(gradient);
    const kernels::ExponentStats stats = block_stats(block, cut);
    if (stats.nonfinite() == 0 || bad++ > 0) continue;
    out << "gradient of " << name << ": " << value_at(block, stats.first_nonfinite) << " at "
        << c10::IntArrayRef(index_at(block, stats.first_nonfinite));
  }
  if (bad == 0 && !std::isfinite(loss)) {
    const char* infinite = loss > 0 ? "inf" : "-inf";
    return concatenate("the loss is ", std::isnan(loss) ? "nan" : infinite, "; all gradients are finite");
  }
  if (bad == 0) return "no gradient holds a value that is not finite (any more)";
  out << "; " << bad << " of " << all << " gradients are not finite";
  return out.str();
}

std::string number(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

/// "fp8 layers: 0.01 % saturated, 1.2 % flushed to zero"
std::string fp8_line(const WatchSummary& summary) {
  double nonzero = 0, saturated = 0, flushed = 0;
  for (const Fp8TensorStats& tensor : summary.fp8) {
    nonzero += static_cast<double>(tensor.nonzero);
    saturated += static_cast<double>(tensor.saturated);
    flushed += static_cast<double>(tensor.flushed);
  }
  const double share = 100 / std::max(1.0, nonzero);
  return "fp8 layers: " + number("%.2g", share * saturated) + " % saturated, " +
         number("%.2g", share * flushed) + " % flushed to zero";
}

}  // namespace

void WatchOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "format", .help = "The format that values are held against", .flag = "watch-format"},
          format);
  visitor({.name = "every",
           .help = "Steps from one that is looked at to the next",
           .min = 1,
           .flag = "watch-every"},
          every);
  visitor({.name = "ops", .help = "Look at the results of ops, not at gradients only", .flag = ""}, ops);
  visitor({.name = "op_stride", .help = "Look at every n-th op only", .min = 1, .flag = ""}, op_stride);
  visitor({.name = "margin",
           .help = "Binades of headroom that the advised scale leaves",
           .min = 0,
           .below_max = true,
           .flag = ""},
          margin);
}

void WatchOptions::validate() const {
  (void)FormatRange(formats::find(format));
  check_limits("amp.WatchOptions", *this);
}

struct NumericsWatch::State {
  State(NamedTensors parameters_in, const WatchOptions& options_in)
      : options((options_in.validate(), options_in)),
        parameters(std::move(parameters_in)),
        summary(FormatRange(formats::find(options.format))),
        ops(summary.range, options.op_stride, summary.ops),
        fp8(summary.fp8) {
    for (const auto& [name, parameter] : parameters) {
      paths.add(name, parameter);
      summary.gradients.push_back({name, {}});
    }
  }

  void begin(double scale_in, std::optional<int64_t> number) {
    scale = scale_in;
    step = number.value_or(step);
    exponent = scale_exponent(scale);
    sampled = armed || step % options.every == 0;
    if (sampled && options.ops) {
      recorder.emplace(paths, ops);
      ops.start_step(step, exponent);
    }
    if (sampled && options.ops) fp8.start(step);
    armed = noted = false;
    open = true;
  }

  /// However the step ends: what its ops did is kept, for an exception may be the consequence.
  void close() {
    stop_looking();
    open = false;
    if (sampled && !noted) note_nonfinite(std::nullopt);
  }

  void stop_looking() {
    recorder.reset();
    fp8.stop();
  }

  WatchOptions options;
  NamedTensors parameters;
  ModulePaths paths;
  WatchSummary summary;
  OpWatch ops;
  Fp8Watch fp8;

  // The open step.
  int64_t step = 0;
  double scale = 1;
  int exponent = 0;
  bool open = false, sampled = false, noted = false;
  bool armed = true;  // the first step is sampled, whatever its number
  std::optional<OpRecorder> recorder;

  void read_gradients();
  void note_nonfinite(const std::optional<NonFinite>& in_gradients);
};

void NumericsWatch::State::read_gradients() {
  kernels::ExponentStats all;
  std::optional<NonFinite> first;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor gradient = parameters[i].second.grad();
    if (!is_countable(gradient) || gradient.numel() == 0) continue;
    const at::Tensor block = countable_block(gradient);
    const kernels::ExponentStats stats = block_stats(block, summary.range.threshold());
    if (stats.nonfinite() > 0 && !first) {
      first = NonFinite{.step = step,
                        .place = {.pass = Pass::backward,
                                  .op = "gradient of " + parameters[i].first,
                                  .path = graph::parent_path(parameters[i].first)},
                        .index = index_at(block, stats.first_nonfinite),
                        .value = value_at(block, stats.first_nonfinite),
                        .inputs_finite = false};
    }
    const kernels::ExponentStats unscaled = stats.scaled(-exponent);
    summary.gradients[i].stats.merge(unscaled);
    all.merge(unscaled);
  }
  summary.all_gradients.merge(all);
  const FormatRange& range = summary.range;
  const auto total = static_cast<double>(std::max<int64_t>(1, all.total()));
  summary.samples.push_back(
      {.step = step,
       .scale = scale,
       .before = range.shares(all),
       .after = range.shares(all, exponent),
       .amax = all.amax,
       .zeros = static_cast<double>(all.zeros) / total,
       .nonfinite = all.nonfinite(),
       .headroom = range.headroom(all, exponent),
       .advised_scale = std::ldexp(1.0, range.advise(summary.all_gradients, options.margin))});
  note_nonfinite(first);
}

/// An op that made such a value is worth telling even if no gradient took harm; one that only passed them on
/// is worth telling when one did.
void NumericsWatch::State::note_nonfinite(const std::optional<NonFinite>& in_gradients) {
  noted = true;
  const bool told_by_op = options.ops && (ops.produced() || (in_gradients && ops.seen()));
  const auto& found = !told_by_op ? in_gradients : ops.produced() ? ops.produced() : ops.seen();
  if (found && summary.nonfinite.size() < kMostNonFinite) summary.nonfinite.push_back(*found);
}

NumericsWatch::NumericsWatch(torch::nn::Module& module, const WatchOptions& options) {
  NamedTensors parameters;
  for (const auto& item : module.named_parameters()) parameters.emplace_back(item.key(), item.value());
  state_ = std::make_unique<State>(std::move(parameters), options);
  for (const auto& item : module.named_buffers()) state_->paths.add(item.key(), item.value());
  for (const auto& item : module.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    if (auto* layer = dynamic_cast<Fp8Layer*>(item.value().get())) layer->set_path(item.key());
  }
}

NumericsWatch::NumericsWatch(NamedTensors parameters, const WatchOptions& options)
    : state_(std::make_unique<State>(std::move(parameters), options)) {}

NumericsWatch::~NumericsWatch() = default;

NumericsWatch::Step NumericsWatch::begin_step(double scale, std::optional<int64_t> number) {
  if (state_->open) fail("amp.NumericsWatch.begin_step", "expected the step before to have ended");
  state_->begin(scale, number);
  return Step(*state_);
}

void NumericsWatch::arm() {
  state_->armed = true;
}

const WatchSummary& NumericsWatch::summary() const {
  return state_->summary;
}

std::string NumericsWatch::line() const {
  const WatchSummary& summary = state_->summary;
  std::string out(summary.range.format().name);
  if (summary.samples.empty()) return out + ": nothing sampled yet";
  const GradientSample& s = summary.samples.back();
  out += ": underflow " + number("%.2g", 100 * s.before.underflow) + " %";
  if (s.scale != 1)
    out += " -> " + number("%.2g", 100 * s.after.underflow) + " % at scale " + report::format_scale(s.scale);
  if (s.after.overflow > 0) out += ", overflow " + number("%.2g", 100 * s.after.overflow) + " %";
  out += ", headroom " + number("%.1f", s.headroom) + " binades, advised scale " +
         report::format_scale(s.advised_scale);
  if (!summary.fp8.empty()) out += ", " + fp8_line(summary);
  if (!summary.skipped.empty()) out += ", " + std::to_string(summary.skipped.size()) + " skipped";
  if (s.nonfinite > 0 && !summary.nonfinite.empty()) out += "; " + summary.nonfinite.back().describe();
  return out;
}

NumericsWatch::Step::Step(State& state) : state_(&state) {}

NumericsWatch::Step::Step(Step&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}

NumericsWatch::Step::~Step() {
  if (!state_) return;
  state_->open = false;
  try {
    state_->close();
  } catch (const std::exception&) {
    // Out of memory while unwinding: what the step showed is lost, the callback is gone.
  }
}

bool NumericsWatch::Step::sampled() const {
  return state_ && state_->sampled;
}

void NumericsWatch::Step::gradients() {
  if (!state_) fail("amp.NumericsWatch.Step.gradients", "expected a step that has not ended");
  state_->stop_looking();
  if (state_->sampled) state_->read_gradients();
}

void NumericsWatch::Step::end(StepResult result, double loss) {
  if (!state_) fail("amp.NumericsWatch.Step.end", "expected a step that has not ended");
  State& s = *std::exchange(state_, nullptr);
  s.close();
  s.summary.steps.push_back({s.step, s.scale, result});
  if (result == StepResult::skipped_nonfinite) {
    std::string cause = cause_in(s.parameters, s.summary.range.threshold(), loss);
    const auto& known = s.summary.nonfinite;
    if (s.sampled && !known.empty() && known.back().step == s.step) cause += "; " + known.back().describe();
    s.summary.skipped.push_back({s.step, s.scale, std::move(cause)});
    s.armed = true;
  } else if (result == StepResult::skipped_underflow) {
    s.summary.skipped.push_back({s.step, s.scale, "1 / loss scale is infinite; the gradients are finite"});
  }
  ++s.step;
}

}  // namespace ulp::amp
