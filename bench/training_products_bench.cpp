// Products of float32 matrices in training: LibTorch's own and oneDNN's (amp::OneDnnProducts), for the three products of a
// linear layer and for whole steps of BERT-base and GPT-2 with the fused AdamW.
//   training_products_bench --benchmark_enable_random_interleaving=true --benchmark_repetitions=5
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/amp/products/onednn_products.h"
#include "ulp/models/bert.h"
#include "ulp/models/gpt2.h"

namespace {

using ulp::amp::OneDnnProducts;

void products(benchmark::State& state, bool onednn, int64_t m, int64_t k, int64_t n, int which) {
  torch::manual_seed(1);
  std::optional<OneDnnProducts> taken;
  if (onednn) taken.emplace();
  const at::Tensor x = at::randn({m, k}), w = at::randn({n, k}), dy = at::randn({m, n}), b = at::randn({n});
  const c10::InferenceMode inference;
  for (auto _ : state) {
    at::Tensor y = which == 0 ? at::addmm(b, x, w.t()) : which == 1 ? at::mm(dy, w) : at::mm(dy.t(), x);
    benchmark::DoNotOptimize(y);
  }
  const double operations = 2.0 * static_cast<double>(m * k * n);
  state.counters["Gflop/s"] =
      benchmark::Counter(operations / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}

/// A step of a text network: forward, cross-entropy, backward, update.
void step(benchmark::State& state, bool onednn, bool gpt2) {
  std::optional<OneDnnProducts> taken;
  if (onednn) taken.emplace();
  torch::manual_seed(1);
  constexpr int64_t kBatch = 4, kLength = 128;
  ulp::models::BertConfig bert = ulp::models::BertConfig::base();
  bert.dropout = bert.attention_dropout = 0;
  ulp::models::Gpt2Config gpt = ulp::models::Gpt2Config::small();
  gpt.dropout = gpt.attention_dropout = 0;
  const auto model = gpt2 ? ulp::models::make_gpt2(gpt) : ulp::models::make_bert(bert);
  ulp::amp::FusedOptimizer optimizer(model->parameters(), ulp::amp::AdamWRule{.lr = 1e-4});
  const at::Tensor tokens = at::randint(30000, {kBatch, kLength}, at::kLong);
  const at::Tensor labels =
      gpt2 ? at::randint(30000, {kBatch * kLength}, at::kLong) : at::randint(2, {kBatch}, at::kLong);
  double loss = 0;
  for (auto _ : state) {
    const at::Tensor logits = model->forward(tokens);
    const at::Tensor each = torch::nn::functional::cross_entropy(logits.flatten(0, -2), labels);
    each.backward();
    ulp::amp::fused_step(optimizer, nullptr);
    model->zero_grad();
    loss = each.item<double>();
  }
  state.counters["loss"] = loss;
}

struct ProductSize {
  int64_t m, k, n;
};

void add_all() {
  constexpr std::array kSizes = {ProductSize{2048, 768, 3072}, ProductSize{512, 768, 768},
                                 ProductSize{256, 1024, 1024}, ProductSize{64, 256, 784},
                                 ProductSize{16, 512, 512}};
  constexpr std::array kNames = {"y", "dx", "dw"};
  for (const bool onednn : {false, true}) {
    const std::string by = onednn ? " / oneDNN" : " / LibTorch";
    for (const ProductSize& size : kSizes) {
      for (int which = 0; which < 3; ++which) {
        const std::string name = std::to_string(size.m) + " x " + std::to_string(size.k) + " x " +
                                 std::to_string(size.n) + ", " + kNames[static_cast<size_t>(which)] + by;
        benchmark::RegisterBenchmark(name.c_str(), products, onednn, size.m, size.k, size.n, which)
            ->UseRealTime();
      }
    }
    for (const bool gpt2 : {false, true}) {
      const std::string name = std::string(gpt2 ? "GPT-2 124 M" : "BERT-base") + ", 4 x 128, step" + by;
      benchmark::RegisterBenchmark(name.c_str(), step, onednn, gpt2)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond)
          ->Iterations(3);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  ulp::amp::prepare_training_memory();
  add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
