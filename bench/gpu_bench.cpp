// A training step of BERT on a GPU, in each precision and under checkpoint plans: time and the peak of the device's memory.
// Ways take turns; the median is printed. Then what each product of the fp8 layers takes by at::_scaled_mm and emulated.
//   gpu_bench [bert-base|bert-large [batch [length [turns]]]] [--ways NAME,...] [--seconds S] [--json FILE]
//   gpu_bench --machine [--json FILE]
// --ways: only these, the first of which the others are compared with; --seconds: no further turn begins after so many; --json:
// the results as JSON, too; --machine: the GPUs and LibTorch, nothing is timed. Exit status 2 where LibTorch can use no GPU.
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/torch.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/fp8/fp8_products.h"
#include "ulp/amp/fp8/fp8_state.h"
#include "ulp/amp/fp8/to_fp8.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/amp/optimizer/graphed_step.h"
#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/base/error.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/measure/gpus/nvidia.h"
#include "ulp/memory/checkpoint/checkpoint.h"
#include "ulp/models/bert.h"

namespace {

using ulp::graph::GraphModule;

struct Way {
  std::string name;
  std::string precision;
  std::shared_ptr<GraphModule> model;
  bool checkpointed = false;
  std::vector<double> seconds = {};
  int64_t peak = 0;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double seconds_of(const std::function<void()>& call) {
  torch::cuda::synchronize();
  const auto start = std::chrono::steady_clock::now();
  call();
  torch::cuda::synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

using Json = nlohmann::ordered_json;

struct Options {
  std::string model = "bert-base";
  int64_t batch = 32, length = 128, turns = 5;
  std::vector<std::string> ways = {};  ///< empty: all
  double seconds = 1e9;
  std::string json = {};
  bool machine = false;
};

int64_t number(const std::string& what, const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1)
    ulp::fail("gpu_bench", "expected a whole number from 1 on for ", what, ", got '", text, "'");
  return number;
}

Options parse(int argc, char** argv) {
  Options options;
  int positional = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) ulp::fail("gpu_bench", "expected a value after ", word);
      return argv[++i];
    };
    if (word == "--machine") {
      options.machine = true;
    } else if (word == "--seconds") {
      options.seconds = static_cast<double>(number(word, value()));
    } else if (word == "--json") {
      options.json = value();
    } else if (word == "--ways") {
      std::istringstream names(value());
      for (std::string name; std::getline(names, name, ',');) options.ways.push_back(name);
    } else if (word.starts_with("--") || positional == 4) {
      ulp::fail("gpu_bench", "expected --ways, --seconds, --json or --machine, got '", word, "'");
    } else if (positional++ == 0) {
      if (word != "bert-base" && word != "bert-large")
        ulp::fail("gpu_bench", "expected bert-base or bert-large, got '", word, "'");
      options.model = word;
    } else {
      (positional == 2   ? options.batch
       : positional == 3 ? options.length
                         : options.turns) = number("batch, length or turns", word);
    }
  }
  return options;
}

/// Nothing where no file is asked for.
void write_json(const Options& options, const Json& json) {
  if (options.json.empty()) return;
  std::ofstream out(options.json);
  out << json.dump(1) << std::endl;
  if (!out) ulp::fail("gpu_bench", "could not write '", options.json, "'");
}

int show_machine(const Options& options) {
  Json json = {{"libtorch", TORCH_VERSION},
               {"gpus_of_libtorch", torch::cuda::device_count()},
               {"gpus", Json::array()}};
  std::printf("LibTorch %s sees %zu GPUs\n", TORCH_VERSION, static_cast<size_t>(torch::cuda::device_count()));
  for (const ulp::measure::Gpu& gpu : ulp::measure::nvidia_gpus()) {
    std::printf("%s, %.0f GiB, compute capability %d.%d, %d multiprocessors, %.0f MHz\n", gpu.name.c_str(),
                gpu.memory_bytes / 0x1p30, gpu.capability / 10, gpu.capability % 10, gpu.multiprocessors,
                gpu.clock_hz / 1e6);
    json["gpus"].push_back({{"name", gpu.name},
                            {"memory_bytes", std::llround(gpu.memory_bytes)},
                            {"capability", gpu.capability},
                            {"multiprocessors", gpu.multiprocessors},
                            {"clock_hz", gpu.clock_hz},
                            {"bandwidth", gpu.bandwidth}});
  }
  write_json(options, json);
  return 0;
}

/// The fused optimizer on the device, and a CUDA graph with another one.
struct OwnUpdate {
  std::unique_ptr<ulp::amp::FusedOptimizer> fused, of_graph;
  std::unique_ptr<ulp::amp::CapturableStep> capturable;
  std::unique_ptr<ulp::amp::GraphedStep> graphed;

  /// Makes what is not there yet: with a loss the graph, else the optimizer.
  void start(const std::vector<torch::Tensor>& parameters, const ulp::amp::GraphedStep::Loss& loss) {
    auto& optimizer = loss ? of_graph : fused;
    if (optimizer) return;
    optimizer = std::make_unique<ulp::amp::FusedOptimizer>(
        std::vector<ulp::amp::FusedGroup>{{parameters, ulp::amp::AdamWRule{.lr = 1e-5}}}, 1,
        ulp::amp::OffloadOptions{.update = ulp::amp::DeviceUpdate::kernels});
    if (!loss) return;
    capturable = std::make_unique<ulp::amp::CapturableStep>(*of_graph);
    graphed = std::make_unique<ulp::amp::GraphedStep>(*of_graph, *capturable, loss);
  }
};

int run(const Options& options) {
  const std::string& name = options.model;
  const ulp::models::BertConfig config =
      name == "bert-large" ? ulp::models::BertConfig::large() : ulp::models::BertConfig::base();
  const int64_t batch = options.batch, length = options.length, turns = options.turns;
  const double start = now();
  torch::manual_seed(1);
  const auto bert = ulp::models::make_bert(config);
  bert->train();
  const auto captured = ulp::capture(bert, {torch::randint(1, config.vocab_size, {2, length})});
  captured->to(torch::kCUDA);
  captured->train();
  const auto fp8 = [&](const char* recipe) {
    const auto model = ulp::amp::to_fp8(captured, ulp::amp::Fp8Recipe::named(recipe));
    model->train();
    return model;
  };
  const std::vector<std::pair<Way, const char*>> all = {
      {{"fp32", "fp32", captured}, nullptr},
      {{"tf32", "tf32", captured}, nullptr},
      {{"bf16", "bf16", captured}, nullptr},
      {{"fp16 and loss scaling", "fp16", captured}, nullptr},
      {{"bf16 and fused step", "bf16", captured}, nullptr},
      {{"bf16 as a CUDA graph", "bf16", captured}, nullptr},
      {{"bf16 and sqrt checkpoints", "bf16", captured, true}, nullptr},
      {{"fp8:current", "bf16", nullptr}, "fp8:current"},
      {{"fp8:delayed", "bf16", nullptr}, "fp8:delayed"}};
  std::vector<Way> ways;
  const auto choose = [&](const std::pair<Way, const char*>& way) {
    ways.push_back(way.first);
    if (way.second) ways.back().model = fp8(way.second);
  };
  for (const auto& way : all)
    if (options.ways.empty()) choose(way);
  for (const std::string& wanted : options.ways) {
    const auto found = std::ranges::find_if(all, [&](const auto& way) { return way.first.name == wanted; });
    if (found == all.end()) ulp::fail("gpu_bench", "knows no way '", wanted, "'");
    choose(*found);
  }
  const torch::Tensor tokens = torch::randint(1, config.vocab_size, {batch, length}).to(torch::kCUDA);
  const torch::Tensor targets = torch::randint(0, config.num_classes, {batch}).to(torch::kCUDA);
  torch::optim::AdamW optimizer(captured->parameters(), torch::optim::AdamWOptions(1e-5));
  ulp::amp::GradScaler scaler;
  c10::DeviceAllocator* memory = c10::getDeviceAllocator(torch::kCUDA);
  const auto peak = [&] {
    return memory->getDeviceStats(0)
        .allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
        .peak;
  };
  const auto loss_of = [&](const Way& way, const std::vector<torch::Tensor>& inputs) {
    const auto guard = ulp::amp::autocast_for(ulp::amp::find_precision(way.precision), torch::kCUDA);
    return torch::cross_entropy_loss(way.model->forward(inputs[0]).to(torch::kFloat), inputs[1]);
  };
  OwnUpdate own;
  const auto step = [&](Way& way) {
    if (way.name == "bf16 as a CUDA graph") {
      own.start(captured->parameters(), [&](const auto& inputs) { return loss_of(way, inputs); });
      own.graphed->run({tokens, targets});
      return;
    }
    optimizer.zero_grad();
    const torch::Tensor loss = loss_of(way, {tokens, targets});
    if (way.name == "bf16 and fused step") {
      loss.backward();
      own.start(captured->parameters(), {});
      ulp::amp::fused_step(*own.fused, nullptr);
    } else if (way.precision == "fp16") {
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
    } else {
      loss.backward();
      optimizer.step();
    }
    if (way.name.starts_with("fp8")) ulp::amp::update_fp8(*way.model);
  };
  const auto checkpoint = [&](const Way& way) {
    ulp::memory::checkpoint(*way.model, way.checkpointed ? ulp::memory::plan_sqrt(way.model->graph())
                                                         : ulp::memory::CheckpointPlan{});
  };
  for (int64_t turn = -1; turn < turns; ++turn) {  // the first does not count
    if (turn > 0 && now() - start > options.seconds) break;
    for (Way& way : ways) {
      ulp::amp::allow_tf32(way.precision == "tf32");
      checkpoint(way);
      step(way);
      memory->resetPeakStats(0);
      constexpr int kSteps = 5;
      const double seconds = seconds_of([&] {
        for (int i = 0; i < kSteps; ++i) step(way);
      });
      if (turn < 0) continue;
      way.seconds.push_back(seconds / kSteps);
      way.peak = std::max<int64_t>(way.peak, peak());
    }
  }
  std::printf("%s, %lld texts of %lld tokens\n%-26s %10s %9s %10s\n", name.c_str(),
              static_cast<long long>(batch), static_cast<long long>(length), "precision", "ms a step",
              "speedup", "peak MiB");
  Json json = {{"model", name},         {"batch", batch},
               {"length", length},      {"turns", ways[0].seconds.size()},
               {"ways", Json::array()}, {"fp8_products", Json::array()}};
  for (const Way& way : ways) {
    json["ways"].push_back({{"way", way.name},
                            {"seconds", median(way.seconds)},
                            {"speedup", median(ways[0].seconds) / median(way.seconds)},
                            {"peak_bytes", way.peak}});
    std::printf("%-26s %10.2f %9.2f %10.0f\n", way.name.c_str(), median(way.seconds) * 1e3,
                median(ways[0].seconds) / median(way.seconds), static_cast<double>(way.peak) / 0x1p20);
  }
  std::map<std::tuple<int64_t, int64_t, int64_t, std::string>, ulp::amp::Fp8ProductChoice> products;
  for (const ulp::amp::Fp8ProductChoice& choice : ulp::amp::fp8_product_choices())
    products.try_emplace(
        {choice.rows, choice.inner, choice.columns, std::string(ulp::enum_name(choice.role))}, choice);
  std::printf("%8s %8s %8s %-16s %14s %12s\n", "rows", "inner", "columns", "product", "_scaled_mm us",
              "emulated us");
  for (const auto& [key, choice] : products) {
    json["fp8_products"].push_back({{"rows", choice.rows},
                                    {"inner", choice.inner},
                                    {"columns", choice.columns},
                                    {"product", std::get<3>(key)},
                                    {"native_seconds", choice.native_seconds},
                                    {"emulated_seconds", choice.emulated_seconds}});
    std::printf("%8lld %8lld %8lld %-16s %14.1f %12.1f\n", static_cast<long long>(choice.rows),
                static_cast<long long>(choice.inner), static_cast<long long>(choice.columns),
                std::get<3>(key).c_str(), choice.native_seconds * 1e6, choice.emulated_seconds * 1e6);
  }
  write_json(options, json);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    if (!torch::cuda::is_available()) {
      std::fprintf(stderr, "gpu_bench: no GPU that this LibTorch can use\n");
      return 2;
    }
    return options.machine ? show_machine(options) : run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 1;
  }
}
