// One optimizer step (unscale, check, clip, AdamW) over the 109.5 million parameters of BERT-base: fused_step
// beside LibTorch's own calls, and the least time the memory needs for the same arrays.
//
// Run with --benchmark_enable_random_interleaving=true --benchmark_repetitions=N, so that the rows take
// turns. Every step's gradients are made ready again outside the measured time. Arrays are far larger than
// any cache.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <chrono>
#include <functional>
#include <memory>

#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/amp/optimizer/large_pages.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/libtorch/torch_parallel.h"

namespace {

using Tensors = std::vector<at::Tensor>;
using ulp::amp::MasterWeights;
using ulp::amp::MomentFormat;

constexpr double kScale = 65536, kMaxNorm = 1e9;

std::vector<std::vector<int64_t>> bert_base_shapes() {
  std::vector<std::vector<int64_t>> shapes = {{30522, 768}, {512, 768}, {2, 768}, {768}, {768}};
  for (int layer = 0; layer < 12; ++layer) {
    for (int i = 0; i < 4; ++i) shapes.insert(shapes.end(), {{768, 768}, {768}});
    shapes.insert(shapes.end(), {{768}, {768}, {3072, 768}, {3072}, {768, 3072}, {768}, {768}, {768}});
  }
  shapes.insert(shapes.end(), {{768, 768}, {768}});
  return shapes;
}

Tensors make(at::ScalarType type, double deviation) {
  Tensors result;
  for (const auto& shape : bert_base_shapes())
    result.push_back((torch::rand(shape) - 0.5).mul_(deviation).to(type));
  return result;
}
Tensors zeros_like(const Tensors& tensors, at::ScalarType type) {
  Tensors result;
  for (const at::Tensor& each : tensors)
    result.push_back(torch::zeros_like(each, each.options().dtype(type)));
  return result;
}
int64_t count(const Tensors& tensors) {
  int64_t n = 0;
  for (const at::Tensor& each : tensors) n += each.numel();
  return n;
}

/// What a row does: `step` is measured, `prepare` before it is not. `bytes` a parameter that have to move.
struct Work {
  std::function<void()> prepare, step;
  double bytes;
};

Tensors with_gradients(at::ScalarType type) {
  Tensors parameters = make(type, 0.1);
  const Tensors gradients = make(type, kScale * 1e-3);
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].requires_grad_();
    parameters[i].mutable_grad() = gradients[i];
  }
  return parameters;
}
Tensors gradients_of(const Tensors& parameters) {
  Tensors result;
  for (const at::Tensor& each : parameters) result.push_back(each.grad());
  return result;
}

/// The calls of a LibTorch program, with fp32 masters where the parameters are bf16.
Work libtorch(at::ScalarType type, double bytes) {
  struct State {
    Tensors parameters, gradients, wide_gradients, masters, first, second, counts;
    at::Tensor inverse = torch::full({}, 1 / kScale);
  };
  auto s = std::make_shared<State>();
  s->parameters = with_gradients(type);
  s->gradients = s->wide_gradients = gradients_of(s->parameters);
  for (const at::Tensor& each : s->parameters) s->masters.push_back(each.detach());
  if (type != at::kFloat) {
    s->masters.clear();
    for (const at::Tensor& each : s->parameters) s->masters.push_back(each.detach().to(at::kFloat));
    s->wide_gradients = zeros_like(s->gradients, at::kFloat);
  }
  s->first = zeros_like(s->masters, at::kFloat);
  s->second = zeros_like(s->masters, at::kFloat);
  for (size_t i = 0; i < s->parameters.size(); ++i) s->counts.push_back(torch::zeros({}));
  const auto step = [s, type] {
    const torch::NoGradGuard no_grad;
    at::Tensor found = torch::zeros({});
    at::_amp_foreach_non_finite_check_and_unscale_(s->gradients, found, s->inverse);
    torch::nn::utils::clip_grad_norm_(s->parameters, kMaxNorm);
    if (found.item<float>() != 0) return;
    if (type != at::kFloat) at::_foreach_copy_(s->wide_gradients, s->gradients);
    at::_foreach_add_(s->counts, 1);
    at::_fused_adamw_(s->masters, s->wide_gradients, s->first, s->second, {}, s->counts, 1e-4, 0.9, 0.999,
                      0.01, 1e-8, false, false);
    if (type != at::kFloat) at::_foreach_copy_(s->parameters, s->masters);
  };
  const auto prepare = [s] { at::_foreach_mul_(s->gradients, kScale); };
  s->inverse.fill_(1 / kScale);
  at::_foreach_mul_(s->gradients, 1 / kScale);
  return {prepare, step, bytes};
}

Work fused(at::ScalarType type, MasterWeights masters, double bytes,
           MomentFormat moments = MomentFormat::fp32) {
  struct State {
    State(Tensors p, MasterWeights masters, MomentFormat moments)
        : optimizer(std::move(p), ulp::amp::AdamWRule{.lr = 1e-4}, masters, /*seed=*/0, moments) {
      scaler.scale(torch::zeros({}));
    }
    ulp::amp::FusedOptimizer optimizer;
    ulp::amp::GradScaler scaler{{.init_scale = kScale, .growth_interval = 1 << 30}};
  };
  auto s = std::make_shared<State>(with_gradients(type), masters, moments);
  const auto step = [s] {
    const auto done = ulp::amp::fused_step(s->optimizer, &s->scaler, {.max_norm = kMaxNorm});
    if (done.result != ulp::amp::StepResult::stepped) std::abort();
    s->scaler.update();
  };
  return {[] {}, step, bytes};
}

/// What torch::optim's own AdamW costs in C++, without unscaling and clipping.
Work torch_optim() {
  auto optimizer =
      std::make_shared<torch::optim::AdamW>(with_gradients(at::kFloat), torch::optim::AdamWOptions(1e-4));
  return {[] {}, [optimizer] { optimizer->step(); }, 28};
}

/// The same arrays, on large pages, with next to no arithmetic: gradients are read twice, three others read
/// and written.
Work memory_bound() {
  constexpr int64_t kPiece = 16384;
  auto arrays = std::make_shared<Tensors>();
  const int64_t n = count(make(at::kFloat, 1)) / kPiece * kPiece;
  for (int i = 0; i < 4; ++i)
    arrays->push_back(ulp::amp::zeros_on_large_pages(torch::empty({n}), at::kFloat).fill_(1));
  const auto step = [arrays, n] {
    float* a[4];
    for (int i = 0; i < 4; ++i) a[i] = (*arrays)[static_cast<size_t>(i)].data_ptr<float>();
    ulp::libtorch::parallel_for(0, n / kPiece, 1, [&](int64_t begin, int64_t end) {
      float lanes[16] = {};
      for (int64_t i = begin * kPiece; i < end * kPiece; i += 16) {
        for (int64_t l = 0; l < 16; ++l) lanes[l] += a[0][i + l];
      }
      benchmark::DoNotOptimize(lanes);
    });
    ulp::libtorch::parallel_for(0, n / kPiece, 1, [&](int64_t begin, int64_t end) {
      const float* __restrict g = a[0];
      float* __restrict p = a[1], * __restrict m = a[2], * __restrict v = a[3];
      for (int64_t i = begin * kPiece; i < end * kPiece; ++i) {
        p[i] += g[i];
        m[i] += g[i];
        v[i] += g[i];
      }
    });
  };
  return {[] {}, step, 32};
}

void run(benchmark::State& state, const std::function<Work()>& make_work) {
  const Work work = make_work();
  work.prepare();
  work.step();  // makes the optimizer's state
  for (auto _ : state) {
    work.prepare();
    const auto start = std::chrono::steady_clock::now();
    work.step();
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  static const double parameters = static_cast<double>(count(make(at::kFloat, 1)));
  state.counters["GB/s"] = benchmark::Counter(
      work.bytes * parameters * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

}  // namespace

int main(int argc, char** argv) {
  ulp::amp::prepare_training_memory();
  const std::pair<const char*, std::function<Work()>> rows[] = {
      {"memory/fp32", memory_bound},
      {"libtorch/fp32", [] { return libtorch(at::kFloat, 48); }},
      {"fused/fp32", [] { return fused(at::kFloat, MasterWeights::fp32, 32); }},
      {"libtorch/bf16", [] { return libtorch(at::kBFloat16, 50); }},
      {"fused/bf16_fp32", [] { return fused(at::kBFloat16, MasterWeights::fp32, 30); }},
      {"fused/bf16_split", [] { return fused(at::kBFloat16, MasterWeights::split, 28); }},
      {"fused/bf16_stochastic", [] { return fused(at::kBFloat16, MasterWeights::stochastic, 24); }},
      {"fused/bf16_kahan", [] { return fused(at::kBFloat16, MasterWeights::kahan, 28); }},
      {"fused/bf16_split_moments_bf16",
       [] { return fused(at::kBFloat16, MasterWeights::split, 20, MomentFormat::bf16); }},
      {"fused/bf16_stochastic_moments_bf16",
       [] { return fused(at::kBFloat16, MasterWeights::stochastic, 16, MomentFormat::bf16); }},
      {"fused/fp32_moments_int8",
       [] { return fused(at::kFloat, MasterWeights::fp32, 20.06, MomentFormat::int8); }},
      {"fused/fp32_moments_int4",
       [] { return fused(at::kFloat, MasterWeights::fp32, 18.13, MomentFormat::int4); }},
      {"fused/bf16_split_moments_int8",
       [] { return fused(at::kBFloat16, MasterWeights::split, 16.06, MomentFormat::int8); }},
      {"fused/bf16_split_moments_int4",
       [] { return fused(at::kBFloat16, MasterWeights::split, 14.13, MomentFormat::int4); }},
      {"torch_optim/fp32", torch_optim},
  };
  for (const auto& [name, make_work] : rows) {
    benchmark::RegisterBenchmark(name,
                                 [make_work = make_work](benchmark::State& state) { run(state, make_work); })
        ->Unit(benchmark::kMillisecond)
        ->UseManualTime()
        ->Iterations(5);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
