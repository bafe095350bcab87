// BERT-base's stack of layers on texts of 128 tokens, GPT-2's, and an LSTM of 2 layers of 1024: LibTorch in
// fp32 against engines in fp32, bf16, with static and dynamic int8 layers and with weights in 8 and 4 bits,
// on the same cores and in the same run. --benchmark_filter=gpt2 names one network. gpt2/decode_* is the time
// of one more token of a text of 64 to 128 tokens, whose keys and values are kept.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <array>
#include <functional>
#include <map>
#include <string>

#include "ulp/base/cpu_usage.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/lower/lower.h"
#include "ulp/models/bert.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/lstm.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/quant/weights/weights.h"
#include "ulp/runtime/engine/engine.h"

namespace {

constexpr int64_t kLength = 128;

enum class Numbers : uint8_t { f32, bf16, static_int8, dynamic, weights8, weights4 };
constexpr std::array<std::pair<Numbers, const char*>, 6> kNumbers = {{{Numbers::f32, "f32"},
                                                                      {Numbers::bf16, "bf16"},
                                                                      {Numbers::static_int8, "static_int8"},
                                                                      {Numbers::dynamic, "dynamic_int8"},
                                                                      {Numbers::weights8, "weights8"},
                                                                      {Numbers::weights4, "weights4"}}};

/// A network, captured.
struct Network {
  int64_t vocabulary;
  std::shared_ptr<ulp::models::TextModel> model;
  std::shared_ptr<ulp::graph::GraphModule> captured;

  std::string continued;  ///< the dimension along which runs continue each other; empty: each stands alone

  Network(int64_t words, const std::shared_ptr<ulp::models::TextModel>& made, bool decodes)
      : vocabulary(words), model(made), continued(decodes ? "time" : "") {
    const torch::NoGradGuard no_grad;
    model->eval();
    ulp::graph::CaptureOptions options;
    options.modes = ulp::graph::Modes::eval_only;
    if (decodes) options.free = {{0, 1, "time"}};
    captured = ulp::capture(model, {tokens(2)}, options);
    captured->eval();
  }
  at::Tensor tokens(int64_t batch) const { return torch::randint(0, vocabulary, {batch, kLength}); }

  /// On random tokens: speed alone is measured.
  std::shared_ptr<ulp::graph::GraphModule> calibrated() const {
    const torch::NoGradGuard no_grad;
    const auto prepared = ulp::quant::prepare(captured, ulp::quant::Recipe::x86_int8());
    prepared->forward(tokens(4));
    return ulp::quant::convert(prepared);
  }

  ulp::runtime::Plan plan(Numbers numbers) const {
    using ulp::LowerOptions;
    LowerOptions options;
    options.continued = continued;
    if (numbers == Numbers::bf16) options.precision = LowerOptions::Precision::bf16;
    switch (numbers) {
      case Numbers::f32:
      case Numbers::bf16:
        return ulp::lower(*captured, options);
      case Numbers::static_int8:
        return ulp::lower(*calibrated(), options);
      case Numbers::dynamic:
        return ulp::lower(*ulp::quant::quantize_dynamic(captured), options);
      default:
        return ulp::lower(
            *ulp::quant::quantize_weights(captured, {.bits = numbers == Numbers::weights8 ? 8 : 4}), options);
    }
  }
};

using MakeModel = std::function<std::shared_ptr<ulp::models::TextModel>()>;
struct Entry {
  std::string name;
  int64_t vocabulary;
  MakeModel make;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {"bert", 30000, [] { return ulp::models::make_bert(ulp::models::BertConfig::base()); }},
      {"gpt2", 50257, [] { return ulp::models::make_gpt2(); }},
      {"lstm", 256, [] { return ulp::models::make_lstm({.embedding = 1024, .hidden = 1024, .layers = 2}); }}};
  return all;
}

/// Made when it is first measured; one network is kept.
const Network& network_of(const Entry& entry, bool decodes = false) {
  static std::map<std::string, Network> kept;
  const std::string name = entry.name + (decodes ? "/decode" : "");
  if (!kept.contains(name)) {
    kept.clear();
    torch::manual_seed(1);
    kept.emplace(name, Network(entry.vocabulary, entry.make(), decodes));
  }
  return kept.at(name);
}

/// Second argument: threads, 0 for all cores.
int threads(const benchmark::State& state) {
  return state.range(1) > 0 ? static_cast<int>(state.range(1)) : ulp::usable_cores();
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

/// One token a run, from the middle of the longest text to its end, again and again.
void decode(benchmark::State& state, const Network& network, const ulp::runtime::Plan& plan) {
  ulp::runtime::Engine engine(plan, {.threads = threads(state)});
  const at::Tensor tokens = network.tokens(1);
  const at::Tensor logits = torch::empty({kLength * network.vocabulary});
  void* out[] = {logits.mutable_data_ptr()};
  const auto read = [&](int64_t first, int64_t count) {
    const void* in[] = {tokens.const_data_ptr<int64_t>() + first};
    engine.set_sizes({{"time", count}});
    engine.run(1, in, out);
  };
  read(0, kLength / 2);
  read(kLength / 2, 1);
  for (auto _ : state) {
    if (engine.position() == kLength) engine.rewind(kLength / 2);
    read(engine.position(), 1);
  }
  state.SetItemsProcessed(state.iterations());
}

// With one thread the CPU column counts all the work, whatever else the machine does.
void register_one(const std::string& name, const std::function<void(benchmark::State&)>& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)
      ->ArgNames({"batch", "threads"})
      ->ArgsProduct({{1, 16}, {1, 0}})
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

void register_all() {
  for (const Entry& entry : entries()) {
    register_one(entry.name + "/libtorch_f32",
                 [&entry](benchmark::State& state) { libtorch(state, network_of(entry)); });
    for (const auto& [numbers, word] : kNumbers) {
      register_one(entry.name + "/engine_" + word, [&entry, numbers = numbers](benchmark::State& state) {
        const Network& network = network_of(entry);
        run_engine(state, network, network.plan(numbers));
      });
    }
    for (const auto& [numbers, word] : kNumbers) {
      if (entry.name != "gpt2" || numbers == Numbers::static_int8) continue;
      const std::string name = entry.name + "/decode_" + word;
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&entry, numbers = numbers](benchmark::State& state) {
                                     const Network& network = network_of(entry, true);
                                     decode(state, network, network.plan(numbers));
                                   })
          ->ArgNames({"batch", "threads"})
          ->ArgsProduct({{1}, {1, 0}})
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
