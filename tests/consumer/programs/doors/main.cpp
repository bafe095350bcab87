// The rooms' headers, each used once.
#include <torch/torch.h>
#include <ulp/amp.h>
#include <ulp/app.h>
#include <ulp/distill.h>
#include <ulp/distributed.h>
#include <ulp/exchange.h>
#include <ulp/formats.h>
#include <ulp/fp8.h>
#include <ulp/graph.h>
#include <ulp/io.h>
#include <ulp/lower.h>
#include <ulp/measure.h>
#include <ulp/memory.h>
#include <ulp/models.h>
#include <ulp/prune.h>
#include <ulp/quant.h>
#include <ulp/runtime.h>
#include <ulp/train.h>
#include <ulp/watch.h>

#include <cstdio>

std::string use_the_umbrella(torch::nn::Sequential model, const torch::Tensor& x);

static void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "expected: %s\n", what);
  std::exit(1);
}

static torch::nn::Sequential make_model() {
  return torch::nn::Sequential(torch::nn::Linear(8, 16), torch::nn::ReLU(), torch::nn::Linear(16, 16),
                               torch::nn::ReLU(), torch::nn::Linear(16, 4));
}

int main() {
  torch::manual_seed(0);
  const torch::Tensor x = torch::randn({4, 8});
  auto model = make_model();
  const auto captured = ulp::capture(model, {x});

  // Training.
  ulp::amp::FusedOptimizer optimizer(captured->parameters(), ulp::amp::AdamWRule{.lr = 1e-3});
  {
    ulp::amp::Autocast bf16(torch::kCPU, torch::kBFloat16);
    captured->forward(x).to(torch::kFloat).square().mean().backward();
  }
  ulp::amp::fused_step(optimizer, nullptr, {.max_norm = 1.0});
  optimizer.zero_grad();
  expect(ulp::amp::to_fp8(captured, ulp::amp::Fp8Recipe::named("fp8:current")) != nullptr, "a graph in fp8");
  ulp::memory::checkpoint(*captured, ulp::memory::plan_every(captured->graph(), 2));
  captured->forward(x).mean().backward();
  expect(ulp::distributed::init_process_group()->size() == 1, "a process that is alone");
  expect(ulp::models::make_mlp()->parameters().size() == 6, "three layers");
  expect(ulp::train::TrainOptions().batch == 128, "the default batch");
  expect(!ulp::distill::loss_entries().empty(), "losses");
  expect(ulp::formats::find("bf16").max() > 1e38, "the range of bf16");

  // Compression.
  captured->eval();
  const auto small = ulp::prune::prune_channels(*captured, {.share = 0.5});
  const auto prepared = ulp::quant::prepare(small.module, ulp::quant::Recipe::x86_int8());
  prepared->forward(x);
  const auto quantized = ulp::quant::convert(prepared);

  // Running, here and elsewhere.
  ulp::runtime::Engine engine(ulp::lower(*quantized));
  expect(ulp::run_engine(engine, x).sizes() == torch::IntArrayRef({4, 4}), "four logits of four samples");
  ulp::io::save_graph("doors.safetensors", *small.module);
  expect(ulp::io::load_graph("doors.safetensors") != nullptr, "the graph that was saved");
  const std::string file = use_the_umbrella(make_model(), x);
  expect(!file.empty(), "an ONNX file");
  expect(!ulp::road_goals().empty(), "goals");
  const auto times = ulp::measure::time_in_turns({{"engine", [&](int64_t) { ulp::run_engine(engine, x); }}},
                                                 4, {.rounds = 1, .round_seconds = 0.001});
  expect(times.size() == 1, "a time");
  std::printf("%zu bytes of ONNX\n", file.size());
}
