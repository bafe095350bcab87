// Forward and backward of fake quantization under autograd, beside LibTorch's operators of the same numbers,
// per tensor and per channel, for tensors from 1e5 to 1e7 elements.
//
// Run with --benchmark_enable_random_interleaving=true --benchmark_repetitions=N, so that the rows take
// turns. Both sides use all of LibTorch's threads and allocate their results, as a training step does.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <functional>
#include <string>

#include "ulp/quant/operators/ops.h"

namespace {

using FakeQuantize = std::function<at::Tensor(const at::Tensor&)>;

constexpr int64_t kChannels = 100;
constexpr int64_t kQmin = -127, kQmax = 127;
constexpr float kScale = 0.02F;

struct Side {
  const char* name;
  FakeQuantize per_tensor, per_channel;
};

std::vector<Side> sides() {
  const at::Tensor scale = torch::full({1}, kScale), zero = torch::zeros({1}, at::kInt);
  const at::Tensor scales = torch::full({kChannels}, kScale), zeros = torch::zeros({kChannels}, at::kInt);
  return {
      {"libtorch",
       [](const at::Tensor& x) { return at::fake_quantize_per_tensor_affine(x, kScale, 0, kQmin, kQmax); },
       [=](const at::Tensor& x) {
         return at::fake_quantize_per_channel_affine(x, scales, zeros, 0, kQmin, kQmax);
       }},
      {"fused",
       [=](const at::Tensor& x) { return ulp::quant::fake_quantize(x, scale, zero, -1, kQmin, kQmax); },
       [=](const at::Tensor& x) { return ulp::quant::fake_quantize(x, scales, zeros, 0, kQmin, kQmax); }}};
}

void forward_backward(benchmark::State& state, const FakeQuantize& fake_quantize) {
  const int64_t n = state.range(0);
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({kChannels, n / kChannels}).requires_grad_();
  const at::Tensor gradient = torch::randn({kChannels, n / kChannels});
  for (auto _ : state) {
    const auto grads = torch::autograd::grad({fake_quantize(x)}, {x}, {gradient});
    benchmark::DoNotOptimize(grads[0].const_data_ptr());
  }
  state.SetItemsProcessed(n * state.iterations());
}

}  // namespace

int main(int argc, char** argv) {
  for (const Side& side : sides()) {
    for (const auto& [kind, op] :
         {std::pair{"per_tensor", side.per_tensor}, {"per_channel", side.per_channel}}) {
      benchmark::RegisterBenchmark((std::string(kind) + "/" + side.name).c_str(),
                                   [op = op](benchmark::State& state) { forward_backward(state, op); })
          ->Arg(100'000)
          ->Arg(1'000'000)
          ->Arg(10'000'000)
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
