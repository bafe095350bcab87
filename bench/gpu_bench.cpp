// A training step of BERT on a GPU, in each precision and under checkpoint plans: time and the peak of the device's memory.
// Ways take turns; the median is printed. Then what each product of the fp8 layers takes by at::_scaled_mm and emulated.
//   gpu_bench [bert-base|bert-large [batch [length [turns]]]]
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/fp8/fp8_products.h"
#include "ulp/amp/fp8/fp8_state.h"
#include "ulp/amp/fp8/to_fp8.h"
#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/graph/capture/capture.h"
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

int run(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "bert-base";
  const auto number = [&](int i, int64_t other) { return argc > i ? std::atoll(argv[i]) : other; };
  const ulp::models::BertConfig config =
      name == "bert-large" ? ulp::models::BertConfig::large() : ulp::models::BertConfig::base();
  const int64_t batch = number(2, 32), length = number(3, 128), turns = number(4, 5);
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
  std::vector<Way> ways = {{"fp32", "fp32", captured},
                           {"tf32", "tf32", captured},
                           {"bf16", "bf16", captured},
                           {"fp16 and loss scaling", "fp16", captured},
                           {"bf16, sqrt checkpoints", "bf16", captured, true},
                           {"fp8:current", "bf16", fp8("fp8:current")},
                           {"fp8:delayed", "bf16", fp8("fp8:delayed")}};
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
  const auto step = [&](Way& way) {
    optimizer.zero_grad();
    torch::Tensor loss;
    {
      const auto guard = ulp::amp::autocast_for(ulp::amp::find_precision(way.precision), torch::kCUDA);
      loss = torch::cross_entropy_loss(way.model->forward(tokens).to(torch::kFloat), targets);
    }
    if (way.precision == "fp16") {
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
  std::printf("%s, %lld texts of %lld tokens\n%-24s %10s %9s %10s\n", name.c_str(),
              static_cast<long long>(batch), static_cast<long long>(length), "precision", "ms a step",
              "speedup", "peak MiB");
  for (const Way& way : ways) {
    std::printf("%-24s %10.2f %9.2f %10.0f\n", way.name.c_str(), median(way.seconds) * 1e3,
                median(ways[0].seconds) / median(way.seconds), static_cast<double>(way.peak) / 0x1p20);
  }
  std::map<std::tuple<int64_t, int64_t, int64_t, std::string>, ulp::amp::Fp8ProductChoice> products;
  for (const ulp::amp::Fp8ProductChoice& choice : ulp::amp::fp8_product_choices())
    products.try_emplace({choice.rows, choice.inner, choice.columns, std::string(ulp::word_of(choice.role))},
                         choice);
  std::printf("%8s %8s %8s %-16s %14s %12s\n", "rows", "inner", "columns", "product", "_scaled_mm us",
              "emulated us");
  for (const auto& [key, choice] : products) {
    std::printf("%8lld %8lld %8lld %-16s %14.1f %12.1f\n", static_cast<long long>(choice.rows),
                static_cast<long long>(choice.inner), static_cast<long long>(choice.columns),
                std::get<3>(key).c_str(), choice.native_seconds * 1e6, choice.emulated_seconds * 1e6);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (!torch::cuda::is_available()) {
    std::fprintf(stderr, "gpu_bench: no GPU that this LibTorch can use\n");
    return 1;
  }
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 1;
  }
}
