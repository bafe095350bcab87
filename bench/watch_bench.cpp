// What NumericsWatch costs: steps of a training run with no watch, with one between its samples, and with one
// as it is used, in turns in one process.
//   watch_bench [MODEL [PRECISION [EVERY [ROUNDS]]]]      default: resnet14 bf16 32 5
// The data are random images of Fashion-MNIST's size, batch 128, channels_last.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/watch/watch.h"
#include "ulp/models/registry.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Training {
  Training(const std::string& name, const ulp::amp::Precision& precision)
      : precision(precision),
        model(ulp::models::make_model(name, {1, 10, 28})),
        optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)),
        scaler({.enabled = precision.needs_scaler}),
        images(torch::randn({128, 1, 28, 28}).contiguous(at::MemoryFormat::ChannelsLast)),
        labels(torch::randint(10, {128})) {
    ulp::models::to_channels_last(*model);
    model->train();
  }

  void step(ulp::amp::NumericsWatch* watch) {
    std::optional<ulp::amp::NumericsWatch::Step> watched;
    if (watch) watched.emplace(watch->begin_step(scaler.get_scale()));
    optimizer.zero_grad();
    at::Tensor logits;
    {
      const ulp::amp::Autocast autocast(at::kCPU, precision.autocast_dtype.value_or(at::kBFloat16),
                                        precision.autocast_dtype.has_value());
      logits = model->forward(images);
    }
    scaler.scale(torch::nn::functional::cross_entropy(logits.to(at::kFloat), labels)).backward();
    if (watched) watched->gradients();
    const auto result = scaler.step(optimizer);
    if (scaler.is_enabled()) scaler.update();
    if (watched) watched->end(result);
  }

  /// Seconds a step.
  double steps(int64_t count, ulp::amp::NumericsWatch* watch) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < count; ++i) step(watch);
    return seconds_since(begin) / static_cast<double>(count);
  }

  ulp::amp::Precision precision;
  std::shared_ptr<ulp::models::ImageModel> model;
  torch::optim::SGD optimizer;
  ulp::amp::GradScaler scaler;
  at::Tensor images, labels;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "resnet14", precision = argc > 2 ? argv[2] : "bf16";
  const int64_t every = argc > 3 ? std::atoll(argv[3]) : 32, rounds = argc > 4 ? std::atoll(argv[4]) : 5;
  torch::manual_seed(1);
  Training training(name, ulp::amp::find_precision(precision));
  training.steps(3, nullptr);
  std::vector<double> off, idle, sampled, on;
  for (int64_t round = 0; round < rounds; ++round) {
    ulp::amp::NumericsWatch watch(*training.model, {.every = every});
    off.push_back(training.steps(every - 1, nullptr));
    sampled.push_back(training.steps(1, &watch));
    idle.push_back(training.steps(every - 1, &watch));
    on.push_back((sampled.back() + idle.back() * static_cast<double>(every - 1)) /
                 static_cast<double>(every));
  }
  const double base = median(off);
  const auto show = [&](const char* what, const std::vector<double>& seconds) {
    std::printf("%-28s %8.2f ms a step   %+6.2f %%   (spread %.2f to %.2f ms)\n", what, 1e3 * median(seconds),
                100 * (median(seconds) / base - 1), 1e3 * *std::min_element(seconds.begin(), seconds.end()),
                1e3 * *std::max_element(seconds.begin(), seconds.end()));
  };
  std::printf("%s, %s, batch 128, %d threads, one step in %lld sampled\n", name.c_str(), precision.c_str(),
              at::get_num_threads(), static_cast<long long>(every));
  show("no watch", off);
  show("watch, between its samples", idle);
  show("watch, a sampled step", sampled);
  show("watch, all steps", on);
  return 0;
}
