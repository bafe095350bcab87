// BERT-base's stack of layers on texts of 128 tokens, and an LSTM of 2 layers of 512 that predicts their
// bytes: LibTorch in fp32 against engines in fp32 and with dynamic int8 layers, on the same cores and in the
// same run.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <map>

#include "ulp/graph/capture/capture.h"
#include "ulp/lower/lower.h"
#include "ulp/models/bert.h"
#include "ulp/models/lstm.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/runtime/engine/engine.h"
#include "ulp/runtime/engine/thread_pool.h"

namespace {

constexpr int64_t kLength = 128;

/// A network with what engines are made from, each built on first use.
struct Network {
  int64_t vocabulary;
  std::shared_ptr<ulp::models::TextModel> model;
  std::shared_ptr<ulp::graph::GraphModule> captured;
  ulp::runtime::Plan f32, int8;

  Network(int64_t words, const std::shared_ptr<ulp::models::TextModel>& made)
      : vocabulary(words), model(made) {
    const torch::NoGradGuard no_grad;
    model->eval();
    captured = ulp::capture(model, {tokens(2)});
    captured->eval();
    f32 = ulp::lower(*captured);
    int8 = ulp::lower(*ulp::quant::quantize_dynamic(captured));
  }
  at::Tensor tokens(int64_t batch) const { return torch::randint(0, vocabulary, {batch, kLength}); }
};

const Network& bert() {
  static const Network made = [] {
    torch::manual_seed(1);
    return Network(30000, ulp::models::make_bert(ulp::models::BertConfig::base()));
  }();
  return made;
}

const Network& lstm() {
  static const Network made = [] {
    torch::manual_seed(1);
    return Network(256, ulp::models::make_lstm({.embedding = 128, .hidden = 512, .layers = 2}));
  }();
  return made;
}

/// Second argument: threads, 0 for all cores.
int threads(const benchmark::State& state) {
  return state.range(1) > 0 ? static_cast<int>(state.range(1)) : ulp::runtime::usable_cores();
}

void libtorch(benchmark::State& state, const Network& network) {
  const torch::NoGradGuard no_grad;
  at::set_num_threads(threads(state));
  const at::Tensor tokens = network.tokens(state.range(0));
  network.model->forward(tokens);
  for (auto _ : state) benchmark::DoNotOptimize(network.model->forward(tokens));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void run_engine(benchmark::State& state, const Network& network, const ulp::runtime::Plan& plan) {
  ulp::runtime::Engine engine(plan, {.threads = threads(state)});
  const at::Tensor tokens = network.tokens(state.range(0));
  const ulp::runtime::TensorInfo& info = engine.outputs()[0];
  const at::Tensor logits = torch::empty({ulp::runtime::element_count(info, state.range(0))});
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

void libtorch_f32(benchmark::State& state) {
  libtorch(state, bert());
}
void engine_f32(benchmark::State& state) {
  run_engine(state, bert(), bert().f32);
}
void engine_dynamic_int8(benchmark::State& state) {
  run_engine(state, bert(), bert().int8);
}
void lstm_libtorch_f32(benchmark::State& state) {
  libtorch(state, lstm());
}
void lstm_engine_f32(benchmark::State& state) {
  run_engine(state, lstm(), lstm().f32);
}
void lstm_engine_dynamic_int8(benchmark::State& state) {
  run_engine(state, lstm(), lstm().int8);
}

// With one thread the CPU column counts all the work, whatever else the machine does.
void cases(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"batch", "threads"})->ArgsProduct({{1, 16}, {1, 0}})->UseRealTime();
  bench->Unit(benchmark::kMillisecond);
}
BENCHMARK(libtorch_f32)->Apply(cases);
BENCHMARK(engine_f32)->Apply(cases);
BENCHMARK(engine_dynamic_int8)->Apply(cases);
BENCHMARK(lstm_libtorch_f32)->Apply(cases);
BENCHMARK(lstm_engine_f32)->Apply(cases);
BENCHMARK(lstm_engine_dynamic_int8)->Apply(cases);

}  // namespace

BENCHMARK_MAIN();
