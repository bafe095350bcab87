// What autocast costs an operation: LibTorch's own lists, the same lists as an OpPolicy, and an op that no
// list names. Tiny tensors, so that nearly all of the time is overhead; inputs are already in the dtype that
// the op computes in, except where the name says "cast".
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <optional>

#include "ulp/amp/autocast/autocast.h"

namespace {

using ulp::amp::Autocast;
using ulp::amp::OpPolicy;

enum Guard { none, libtorch, policy };

std::optional<Autocast> open(int64_t kind) {
  if (kind == libtorch) return std::optional<Autocast>(std::in_place, torch::kCPU, torch::kBFloat16);
  if (kind == policy) {
    return std::optional<Autocast>(std::in_place, torch::kCPU, torch::kBFloat16, OpPolicy::libtorch_cpu());
  }
  return std::nullopt;
}

template <typename Op>
void measure(benchmark::State& state, const Op& op) {
  const torch::NoGradGuard no_grad;
  torch::set_num_threads(1);
  const auto guard = open(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(op());
}

void listed(benchmark::State& state) {
  const auto x = torch::ones({2, 2}, torch::kBFloat16);
  measure(state, [&] { return torch::mm(x, x); });
}

void listed_cast(benchmark::State& state) {
  const auto x = torch::ones({2, 2}, state.range(0) == none ? torch::kBFloat16 : torch::kFloat);
  measure(state, [&] { return torch::mm(x, x); });
}

void not_listed(benchmark::State& state) {
  const auto x = torch::ones({2, 2}, torch::kBFloat16);
  measure(state, [&] { return torch::neg(x); });
}

void guard(benchmark::State& state) {
  for (auto _ : state) {
    auto opened = open(state.range(0));
    benchmark::DoNotOptimize(opened);
  }
}

BENCHMARK(listed)->ArgName("guard")->DenseRange(none, policy);
BENCHMARK(listed_cast)->ArgName("guard")->DenseRange(libtorch, policy);
BENCHMARK(not_listed)->ArgName("guard")->DenseRange(none, policy);
BENCHMARK(guard)->ArgName("guard")->DenseRange(libtorch, policy);

}  // namespace

BENCHMARK_MAIN();
