#include "ulp/app/bench/bench_amp.h"

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/fp8/fp8_state.h"
#include "ulp/amp/fp8/to_fp8.h"
#include "ulp/amp/int8/to_int8.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/amp/scaling/make_scaler.h"
#include "ulp/app/bench/bench_amp_parts.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/base/seconds_since.h"
#include "ulp/measure/memory_meter.h"

namespace ulp::app {

namespace {

constexpr std::array kNetworks = {AmpNetwork::feed_forward, AmpNetwork::unet, AmpNetwork::bert};

/// fp16 parameters have fp32 masters only.
amp::MasterWeights masters_for(const amp::Precision& precision, amp::MasterWeights asked) {
  return precision.parameter_dtype == at::kHalf ? amp::MasterWeights::fp32 : asked;
}

amp::MomentFormat moments_for(const amp::Precision& precision, amp::MomentFormat asked) {
  return precision.parameter_dtype == at::kBFloat16 ? asked : amp::MomentFormat::fp32;
}

/// One network being trained in one mode.
class Trainee {
 public:
  Trainee(const AmpWorkload& work, const std::string& precision, const AmpBenchOptions& options)
      : work_(work),
        precision_(amp::find_precision(precision)),
        model_(make(work, precision_, options.seed)),
        rewritten_(in_eight_bits()),
        optimizer_(model_->parameters(), amp::AdamWRule{.lr = work.learning_rate},
                   masters_for(precision_, options.masters), /*seed=*/0,
                   moments_for(precision_, options.moments)),
        scaler_(amp::make_scaler(precision_.needs_scaler ? "pytorch" : "none", {.init_scale = 1024})) {}

  /// Forward, backward, optimizer; the loss.
  double step() {
    const AmpBatch& batch = work_.batches[static_cast<size_t>(steps_++) % work_.batches.size()];
    at::Tensor logits;
    {
      const auto guard = amp::autocast_for(precision_, at::kCPU);
      const at::Tensor inputs = amp::cast_input(precision_, batch.inputs);
      logits = rewritten_ ? rewritten_->forward(inputs) : work_.forward(*model_, inputs);
    }
    const at::Tensor loss = at::cross_entropy_loss(logits.to(at::kFloat), batch.targets);
    scaler_.scale(loss).backward();
    amp::fused_step(optimizer_, &scaler_);
    if (scaler_.is_enabled()) scaler_.update();
    if (precision_.fp8) amp::update_fp8(*rewritten_);
    optimizer_.zero_grad();  // to none: the next backward writes fresh gradients and adds to nothing
    return loss.item<double>();
  }

  int64_t steps() const { return steps_; }
  int64_t parameters() const {
    int64_t count = 0;
    for (const at::Tensor& parameter : model_->parameters()) count += parameter.numel();
    return count;
  }

 private:
  static std::shared_ptr<torch::nn::Module> make(const AmpWorkload& work, const amp::Precision& precision,
                                                 uint64_t seed) {
    torch::manual_seed(seed);
    auto model = work.make();
    amp::apply_precision(*model, precision);
    model->train();
    return model;
  }

  /// The model with layers in fp8 or int8, where the precision has them; else null.
  std::shared_ptr<graph::GraphModule> in_eight_bits() const {
    if (!precision_.fp8 && !precision_.int8) return nullptr;
    const auto captured = work_.capture(*model_, work_.batches[0].inputs.narrow(0, 0, 2));
    captured->train();
    return precision_.int8 ? amp::to_int8(captured, amp::Int8Recipe::named(precision_.name))
                           : amp::to_fp8(captured, amp::Fp8Recipe::named(precision_.name));
  }

  const AmpWorkload& work_;
  const amp::Precision& precision_;
  std::shared_ptr<torch::nn::Module> model_;
  std::shared_ptr<graph::GraphModule> rewritten_;  ///< of the same parameters
  amp::FusedOptimizer optimizer_;
  amp::GradScaler scaler_;
  int64_t steps_ = 0;
};

/// A trainee and what is known of it so far.
struct TraineeRun {
  AmpResult result;
  std::unique_ptr<Trainee> trainee = {};
  std::vector<double> seconds = {};
  measure::QuietMeter quiet = measure::QuietMeter();
};

TraineeRun start(AmpNetwork network, const std::string& precision, const AmpWorkload& work,
                 const AmpBenchOptions& options) {
  TraineeRun run{.result = {.network = network, .precision = precision, .shape = work.shape},
                 .quiet = measure::QuietMeter(options.probe)};
  const measure::MemoryMeter meter;
  run.trainee = std::make_unique<Trainee>(work, precision, options);
  run.result.first_loss = run.trainee->step();
  run.trainee->step();  // the first one had no optimizer state yet
  run.result.peak_bytes = meter.peak_bytes();
  run.result.parameters = run.trainee->parameters();
  return run;
}

using Clock = std::chrono::steady_clock;

/// How many steps make a turn of about a fifth of a second; the same for every precision, so that all of them
/// have taken as many when the losses are compared.
int steps_per_turn(Trainee& trainee) {
  constexpr double kTurnSeconds = 0.2;
  const auto begin = Clock::now();
  trainee.step();
  return std::clamp(static_cast<int>(kTurnSeconds / seconds_since(begin)), 1, 100);
}

void take_turn(TraineeRun& run, int steps) {
  run.quiet.begin();
  const auto begin = Clock::now();
  for (int i = 0; i < steps; ++i) run.result.last_loss = run.trainee->step();
  run.seconds.push_back(seconds_since(begin) / steps);
  run.quiet.end();
}

AmpResult finish(TraineeRun& run, bool profile) {
  AmpResult& result = run.result;
  std::vector<double>& seconds = run.seconds;
  std::sort(seconds.begin(), seconds.end());
  const size_t middle = seconds.size() / 2;
  result.seconds = seconds.size() % 2 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
  result.fastest = seconds.front();
  result.slowest = seconds.back();
  result.others = run.quiet.others();
  result.steps = run.trainee->steps();
  if (profile) result.profile = measure::profile_ops([&] { run.trainee->step(); });
  return std::move(result);
}

/// All precisions of one network, in turn.
std::vector<AmpResult> bench_network(AmpNetwork network, const AmpBenchOptions& options) {
  const PollsInterrupts polls;
  const auto say = [&](const std::string& precision, const char* doing) {
    check_interrupted();
    if (options.progress) options.progress(std::string(to_string(network)) + ", " + precision + ": " + doing);
  };
  const AmpWorkload work = make_workload(network, options);
  std::vector<TraineeRun> runs;
  for (const std::string& precision : options.precisions) {
    say(precision, "memory");
    runs.push_back(start(network, precision, work, options));
  }
  int steps = 0;
  for (TraineeRun& run : runs) {
    say(run.result.precision, "warm-up");
    const int wanted = steps_per_turn(*run.trainee);
    if (steps == 0) steps = wanted;
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (TraineeRun& run : runs) {
      say(run.result.precision, "time");
      take_turn(run, steps);
    }
  }
  std::vector<AmpResult> results;
  for (TraineeRun& run : runs) results.push_back(finish(run, options.profile));
  return results;
}

}  // namespace

const char* to_string(AmpNetwork network) {
  switch (network) {
    case AmpNetwork::feed_forward:
      return "feed-forward";
    case AmpNetwork::unet:
      return "unet";
    default:
      return "bert";
  }
}

AmpNetwork find_amp_network(const std::string& name) {
  std::string known;
  for (const AmpNetwork one : kNetworks) {
    if (name == to_string(one)) return one;
    known.append(known.empty() ? "" : ", ").append(to_string(one));
  }
  fail("app.bench_amp", "expected a network of ", known, ", got '", name, "'");
}

void AmpBenchOptions::validate() const {
  constexpr const char* kWhere = "app.AmpBenchOptions";
  if (networks.empty()) fail(kWhere, "expected at least one network, got none");
  if (precisions.empty()) fail(kWhere, "expected at least one precision, got none");
  for (const std::string& name : precisions) amp::check_device(amp::find_precision(name), at::kCPU);
  if (rounds < 1) fail(kWhere, "expected rounds >= 1, got ", rounds);
}

std::vector<AmpResult> bench_amp(const AmpBenchOptions& options) {
  options.validate();
  std::vector<AmpResult> results;
  for (const AmpNetwork network : options.networks) {
    for (AmpResult& result : bench_network(network, options)) results.push_back(std::move(result));
  }
  return results;
}

}  // namespace ulp::app
