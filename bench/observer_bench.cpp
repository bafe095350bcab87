// What observing costs: recording a batch of 2^20 values, searching for bounds, and both for the channels of
// a convolution's weight. Each row is an observer.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <string>

#include "ulp/quant/observers/observer.h"

namespace {

using ulp::quant::ObserverKind;
using ulp::quant::Scheme;

struct Row {
  const char* name;
  ObserverKind kind;
  bool per_channel;
};

constexpr Row kRows[] = {
    {"min_max", ObserverKind::min_max, true},      {"moving_average", ObserverKind::moving_average, true},
    {"histogram", ObserverKind::histogram, false}, {"percentile", ObserverKind::percentile, true},
    {"entropy", ObserverKind::entropy, true},      {"mse", ObserverKind::mse, true}};

void record(benchmark::State& state, ObserverKind kind) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({16, 64, 32, 32});
  const auto observer = ulp::quant::make_observer({Scheme{}, kind}, "x");
  for (auto _ : state) benchmark::DoNotOptimize(observer->forward(x).const_data_ptr());
  state.SetItemsProcessed(x.numel() * state.iterations());
}

void search(benchmark::State& state, ObserverKind kind) {
  torch::manual_seed(1);
  const auto observer = ulp::quant::make_observer({Scheme{}, kind}, "x");
  observer->forward(torch::randn({16, 64, 32, 32}));
  for (auto _ : state) benchmark::DoNotOptimize(observer->qparams().scale.const_data_ptr());
}

void weight(benchmark::State& state, ObserverKind kind) {
  torch::manual_seed(1);
  const at::Tensor w = torch::randn({512, 512, 3, 3});
  const Scheme scheme{
      .is_signed = true, .mapping = ulp::quant::Mapping::symmetric, .granularity = ulp::quant::PerChannel{0}};
  for (auto _ : state) {
    const auto observer = ulp::quant::make_observer({scheme, kind}, "w");
    observer->forward(w);
    benchmark::DoNotOptimize(observer->qparams().scale.const_data_ptr());
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (const Row& row : kRows) {
    const auto add = [&](const char* what, void (*run)(benchmark::State&, ObserverKind)) {
      benchmark::RegisterBenchmark((std::string(what) + "/" + row.name).c_str(),
                                   [run, kind = row.kind](benchmark::State& state) { run(state, kind); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    };
    add("record", record);
    add("search", search);
    if (row.per_channel) add("weight", weight);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
