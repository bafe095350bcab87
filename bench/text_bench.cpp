// BERT-base's stack of layers on texts of 128 tokens: LibTorch in fp32 against engines in fp32 and with
// dynamic int8 layers, on the same cores and in the same run.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <map>

#include "ulp/graph/capture.h"
#include "ulp/lower/lower.h"
#include "ulp/models/bert.h"
#include "ulp/quant/dynamic.h"
#include "ulp/runtime/engine.h"
#include "ulp/runtime/thread_pool.h"

namespace {

constexpr int64_t kLength = 128;

const std::shared_ptr<ulp::models::TextModel>& model() {
  static const auto made = [] {
    torch::manual_seed(1);
    auto bert = ulp::models::make_bert(ulp::models::BertConfig::base());
    bert->eval();
    return bert;
  }();
  return made;
}

const std::shared_ptr<ulp::graph::GraphModule>& captured() {
  static const auto made = [] {
    const torch::NoGradGuard no_grad;
    auto graph = ulp::capture(model(), {torch::randint(0, 30000, {2, kLength})});
    graph->eval();
    return graph;
  }();
  return made;
}

/// Second argument: threads, 0 for all cores.
int threads(const benchmark::State& state) {
  return state.range(1) > 0 ? static_cast<int>(state.range(1)) : ulp::runtime::usable_cores();
}

void libtorch_f32(benchmark::State& state) {
  const torch::NoGradGuard no_grad;
  at::set_num_threads(threads(state));
  const at::Tensor tokens = torch::randint(0, 30000, {state.range(0), kLength});
  model()->forward(tokens);
  for (auto _ : state) benchmark::DoNotOptimize(model()->forward(tokens));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void run_engine(benchmark::State& state, const ulp::runtime::Plan& plan) {
  ulp::runtime::Engine engine(plan, {.threads = threads(state)});
  const at::Tensor tokens = torch::randint(0, 30000, {state.range(0), kLength});
  const at::Tensor logits = torch::empty({state.range(0), 2});
  const void* in[] = {tokens.const_data_ptr()};
  void* out[] = {logits.mutable_data_ptr()};
  engine.run(state.range(0), in, out);
  for (auto _ : state) engine.run(state.range(0), in, out);
  state.SetItemsProcessed(state.iterations() * state.range(0));
  // Seconds of one run by kernel, in order, on all cores but without slices.
  std::map<std::string, double> by_kernel;
  for (const auto& step : engine.profile(state.range(0), in, out)) by_kernel[step.kernel] += step.seconds;
  for (const auto& [kernel, seconds] : by_kernel) state.counters[kernel + "_ms"] = seconds * 1e3;
}

void engine_f32(benchmark::State& state) {
  static const ulp::runtime::Plan plan = ulp::lower(*captured());
  run_engine(state, plan);
}

void engine_dynamic_int8(benchmark::State& state) {
  static const ulp::runtime::Plan plan = ulp::lower(*ulp::quant::quantize_dynamic(captured()));
  run_engine(state, plan);
}

// With one thread the CPU column counts all the work, whatever else the machine does.
void cases(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"batch", "threads"})->ArgsProduct({{1, 16}, {1, 0}})->UseRealTime();
  bench->Unit(benchmark::kMillisecond);
}
BENCHMARK(libtorch_f32)->Apply(cases);
BENCHMARK(engine_f32)->Apply(cases);
BENCHMARK(engine_dynamic_int8)->Apply(cases);

}  // namespace

BENCHMARK_MAIN();
