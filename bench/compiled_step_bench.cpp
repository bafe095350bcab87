// One training step of small networks in fp32, on one thread, or as many as OMP_NUM_THREADS says: compiled,
// beside the captured graph with the fused optimizer (what ulp has without compiling) and LibTorch's own
// modules with torch::optim.
//
// Run with --benchmark_enable_random_interleaving=true --benchmark_repetitions=N, so that the rows take turns. With `--losses`
// it trains by 1,000 batches of a teacher's instead, compiled and in LibTorch, and prints how far the losses part.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/registry.h"
#include "ulp/train/compile/compiled_step.h"

namespace {

namespace nn = torch::nn;
using ulp::train::LossFunction;

/// A network of linear layers.
struct Network {
  std::string name;
  std::vector<int64_t> widths;
  int64_t batch;
  std::string activation;  ///< relu, tanh or gelu
  bool layer_norm = false;
  bool classes = false;  ///< cross-entropy with AdamW in the place of mse with Adam
};

/// A network of ulp::models for images of 32 by 32, with cross-entropy and SGD with momentum.
struct ConvNetwork {
  std::string name;
  int64_t batch;
};

constexpr int64_t kChannels = 3, kPixels = 32, kClasses = 10;

nn::Sequential make(const Network& network) {
  torch::manual_seed(1);
  nn::Sequential made;
  for (size_t i = 0; i + 1 < network.widths.size(); ++i) {
    made->push_back(nn::Linear(network.widths[i], network.widths[i + 1]));
    if (i + 2 == network.widths.size()) break;
    if (network.layer_norm) made->push_back(nn::LayerNorm(nn::LayerNormOptions({network.widths[i + 1]})));
    if (network.activation == "relu") made->push_back(nn::ReLU());
    if (network.activation == "tanh") made->push_back(nn::Tanh());
    if (network.activation == "gelu") made->push_back(nn::GELU());
  }
  return made;
}

struct Data {
  at::Tensor inputs, targets;
};
Data make_data(const Network& network) {
  torch::manual_seed(2);
  const at::Tensor inputs = torch::randn({network.batch, network.widths.front()});
  if (network.classes) return {inputs, torch::randint(network.widths.back(), {network.batch}, at::kLong)};
  return {inputs, torch::randn({network.batch, network.widths.back()})};
}

at::Tensor loss_of(const Network& network, const at::Tensor& result, const at::Tensor& targets) {
  return network.classes ? nn::functional::cross_entropy(result, targets)
                         : nn::functional::mse_loss(result, targets);
}

ulp::amp::UpdateRule rule_of(const Network& network) {
  if (network.classes) return ulp::amp::AdamWRule{};
  return ulp::amp::AdamRule{};
}

std::function<float()> compiled_step(const Network& network) {
  nn::Sequential model = make(network);
  const Data data = make_data(network);
  const auto graph = ulp::capture(model, {data.inputs});
  graph->train();
  const auto optimizer = std::make_shared<ulp::amp::FusedOptimizer>(graph->parameters(), rule_of(network));
  const auto step = std::make_shared<ulp::train::CompiledStep>(
      ulp::train::compile(graph, network.classes ? LossFunction::cross_entropy() : LossFunction::mse(),
                          *optimizer, {.threads = at::get_num_threads()}));
  return [data, step, optimizer, batch = network.batch, classes = network.classes] {
    const float* inputs = data.inputs.const_data_ptr<float>();
    return classes ? step->step(inputs, data.targets.const_data_ptr<int64_t>(), batch)
                   : step->step(inputs, data.targets.const_data_ptr<float>(), batch);
  };
}

std::function<float()> fused_step(const Network& network) {
  nn::Sequential model = make(network);
  const Data data = make_data(network);
  const auto graph = ulp::capture(model, {data.inputs});
  graph->train();
  const auto optimizer = std::make_shared<ulp::amp::FusedOptimizer>(graph->parameters(), rule_of(network));
  return [=] {
    optimizer->zero_grad();
    const at::Tensor loss = loss_of(network, graph->forward(data.inputs), data.targets);
    loss.backward();
    ulp::amp::fused_step(*optimizer, nullptr);
    return loss.item<float>();
  };
}

std::function<float()> eager_step(const Network& network) {
  nn::Sequential model = make(network);
  const Data data = make_data(network);
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  if (network.classes) {
    optimizer = std::make_shared<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(1e-3));
  } else {
    optimizer = std::make_shared<torch::optim::Adam>(model->parameters(), torch::optim::AdamOptions(1e-3));
  }
  return [=, model = model]() mutable {
    optimizer->zero_grad();
    const at::Tensor loss = loss_of(network, model->forward(data.inputs), data.targets);
    loss.backward();
    optimizer->step();
    return loss.item<float>();
  };
}

std::shared_ptr<ulp::models::ImageModel> make_conv(const ConvNetwork& network) {
  torch::manual_seed(1);
  const auto made = ulp::models::make_model(
      network.name, {.in_channels = kChannels, .num_classes = kClasses, .image_size = kPixels});
  made->train();
  return made;
}
Data make_images(const ConvNetwork& network) {
  torch::manual_seed(2);
  return {torch::randn({network.batch, kChannels, kPixels, kPixels}),
          torch::randint(kClasses, {network.batch}, at::kLong)};
}

std::function<float()> compiled_conv_step(const ConvNetwork& network) {
  const auto model = make_conv(network);
  const Data data = make_images(network);
  const auto graph = ulp::capture(model, {data.inputs}, {.far_sizes = false});
  graph->train();
  const auto optimizer = std::make_shared<ulp::amp::FusedOptimizer>(
      graph->parameters(), ulp::amp::SgdRule{.lr = 0.01, .momentum = 0.9});
  const auto step = std::make_shared<ulp::train::CompiledStep>(
      ulp::train::compile(graph, LossFunction::cross_entropy(), *optimizer,
                          {.dropout_seed = 1, .threads = at::get_num_threads()}));
  return [data, step, optimizer, batch = network.batch] {
    return step->step(data.inputs.const_data_ptr<float>(), data.targets.const_data_ptr<int64_t>(), batch);
  };
}

/// LibTorch's modules, weights and images channels-last, where its convolutions are fastest.
std::function<float()> eager_conv_step(const ConvNetwork& network) {
  const auto model = make_conv(network);
  ulp::models::to_channels_last(*model);
  Data data = make_images(network);
  data.inputs = data.inputs.contiguous(at::MemoryFormat::ChannelsLast);
  const auto optimizer =
      std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  return [=] {
    optimizer->zero_grad();
    const at::Tensor loss = nn::functional::cross_entropy(model->forward(data.inputs), data.targets);
    loss.backward();
    optimizer->step();
    return loss.item<float>();
  };
}

void measure_conv(benchmark::State& state,
                  const std::function<std::function<float()>(const ConvNetwork&)>& make_step,
                  const ConvNetwork& network) {
  const std::function<float()> step = make_step(network);
  for (int i = 0; i < 2; ++i) step();
  for (auto _ : state) benchmark::DoNotOptimize(step());
}

void measure(benchmark::State& state, const std::function<std::function<float()>(const Network&)>& make_step,
             const Network& network) {
  const std::function<float()> step = make_step(network);
  for (int i = 0; i < 20; ++i) step();
  for (auto _ : state) benchmark::DoNotOptimize(step());
  // Of the products: forward, and both backward products but the first layer's gradient of its input.
  double products = 0;
  for (size_t i = 0; i + 1 < network.widths.size(); ++i) {
    const double layer = static_cast<double>(network.widths[i] * network.widths[i + 1] * network.batch) * 2;
    products += layer * (i == 0 ? 2 : 3);
  }
  state.counters["Gflop/s"] =
      benchmark::Counter(products * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

/// Losses of both in 1,000 steps from the same parameters and batches, for three seeds.
void compare_losses() {
  constexpr int kSteps = 1000;
  for (const uint64_t seed : {1, 2, 3}) {
    const Network network{"", {8, 64, 64, 4}, 64, "tanh"};
    nn::Sequential model = make(network), same = make(network);
    const auto graph = ulp::capture(model, {torch::randn({64, 8})});
    graph->train();
    ulp::amp::FusedOptimizer optimizer(graph->parameters(), ulp::amp::AdamRule{});
    ulp::train::CompiledStep step = ulp::train::compile(graph, LossFunction::mse(), optimizer);
    torch::optim::Adam adam(same->parameters(), torch::optim::AdamOptions(1e-3));
    torch::manual_seed(seed);
    const at::Tensor teacher = torch::randn({4, 8});
    double parted = 0, first = 0, ours = 0, theirs = 0;
    for (int i = 0; i < kSteps; ++i) {
      const at::Tensor x = torch::randn({64, 8}), y = torch::tanh(torch::linear(x, teacher));
      adam.zero_grad();
      const at::Tensor loss = torch::mse_loss(same->forward(x), y);
      loss.backward();
      adam.step();
      theirs = loss.item<double>();
      ours = static_cast<double>(step.step(x, y));
      if (i == 0) first = ours;
      parted = std::max(parted, std::abs(ours - theirs) / theirs);
    }
    std::printf(
        "seed %d: loss %.4f in the first step; in the last %.6f compiled, %.6f LibTorch; farthest apart "
        "%.1e\n",
        static_cast<int>(seed), first, ours, theirs, parted);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) torch::set_num_threads(1);
  if (argc > 1 && std::string(argv[1]) == "--losses") {
    compare_losses();
    return 0;
  }
  const std::vector<Network> networks = {
      {"mlp 8-64-64-4, batch 64, relu, Adam", {8, 64, 64, 4}, 64, "relu"},
      {"mlp 8-32-32-4, batch 1, relu, Adam", {8, 32, 32, 4}, 1, "relu"},
      {"mlp 8-64-64-4, batch 1, tanh, Adam", {8, 64, 64, 4}, 1, "tanh"},
      {"mlp 17-256-256-6, batch 256, tanh, Adam", {17, 256, 256, 6}, 256, "tanh"},
      {"mlp 16-128-128-10, batch 64, layer norm, gelu, AdamW", {16, 128, 128, 10}, 64, "gelu", true, true},
      {"mlp 64-512-512-8, batch 256, relu, Adam", {64, 512, 512, 8}, 256, "relu"},
      {"mlp 64-1024-1024-8, batch 256, relu, Adam", {64, 1024, 1024, 8}, 256, "relu"},
      {"mlp 784-256-10, batch 64, relu, AdamW", {784, 256, 10}, 64, "relu", false, true},
  };
  for (const Network& network : networks) {
    for (const auto& [name, make_step] :
         {std::pair<std::string, std::function<float()> (*)(const Network&)>{"compiled", compiled_step},
          {"fused_step", fused_step},
          {"torch::optim", eager_step}}) {
      benchmark::RegisterBenchmark((network.name + " / " + name).c_str(), [network, made = make_step](
                                                                              benchmark::State& state) {
        measure(state, made, network);
      })->Unit(benchmark::kMicrosecond);
    }
  }
  for (const ConvNetwork& network :
       {ConvNetwork{"resnet14", 128}, ConvNetwork{"resnet20", 128}, ConvNetwork{"mobilenet_v2", 32}}) {
    for (const auto& [name, make_step] :
         {std::pair<std::string, std::function<float()> (*)(const ConvNetwork&)>{"compiled",
                                                                                 compiled_conv_step},
          {"torch::optim", eager_conv_step}}) {
      benchmark::RegisterBenchmark(
          (network.name + ", batch " + std::to_string(network.batch) + " / " + name).c_str(),
          [network, made = make_step](benchmark::State& state) { measure_conv(state, made, network); })
          ->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
