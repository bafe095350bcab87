// The optimizer's step of BERT alone, on a GPU: each way to update its parameters, and what it keeps a parameter.
// Ways take turns; the median is printed. "fp32, at::_fused_adamw_" is what PyTorch's AdamW(fused=True) calls.
//   gpu_optimizer_bench [bert-base|bert-large [turns]] [--json FILE] [--cpu]
// --cpu: on the processor, with the ways that it has. Exit status 2 where LibTorch can use no GPU.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ulp/amp/optimizer/block_moments.h"
#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/base/error.h"
#include "ulp/models/bert.h"

namespace {

using ulp::amp::DeviceUpdate;
using ulp::amp::FusedOptimizer;
using ulp::amp::MasterWeights;
using ulp::amp::MomentFormat;

struct Way {
  const char* name;
  at::ScalarType type;
  DeviceUpdate update;
  MasterWeights masters = MasterWeights::fp32;
  MomentFormat moments = MomentFormat::fp32;
};

constexpr Way kWays[] = {
    {"fp32, at::_fused_adamw_", at::kFloat, DeviceUpdate::fused_ops},
    {"fp32, at::_foreach_", at::kFloat, DeviceUpdate::foreach_ops},
    {"fp32, kernels", at::kFloat, DeviceUpdate::kernels},
    {"bf16, fp32 masters", at::kBFloat16, DeviceUpdate::kernels},
    {"bf16, split masters", at::kBFloat16, DeviceUpdate::kernels, MasterWeights::split},
    {"bf16, split, int8 moments", at::kBFloat16, DeviceUpdate::kernels, MasterWeights::split,
     MomentFormat::int8},
    {"bf16, stochastic", at::kBFloat16, DeviceUpdate::kernels, MasterWeights::stochastic}};

/// Parameters, gradients and optimizer of one way.
struct Run {
  std::vector<at::Tensor> parameters;
  FusedOptimizer optimizer;

  Run(const Way& way, const std::vector<std::vector<int64_t>>& shapes, at::Device device)
      : parameters(make(way, shapes, device)),
        optimizer(
            {ulp::amp::FusedGroup{parameters, ulp::amp::AdamWRule{.lr = 1e-5}, way.masters, way.moments}}, 1,
            {.update = way.update}) {}

  static std::vector<at::Tensor> make(const Way& way, const std::vector<std::vector<int64_t>>& shapes,
                                      at::Device device) {
    std::vector<at::Tensor> made;
    for (const auto& shape : shapes) {
      const auto options = at::TensorOptions(way.type).device(device);
      made.push_back((torch::randn(shape, options) * 0.02).requires_grad_());
      made.back().mutable_grad() = torch::randn(shape, options) * 1e-3;
    }
    return made;
  }

  /// Bytes of parameters, masters and moments; gradients are not counted.
  int64_t kept_bytes() {
    int64_t bytes = 0;
    const auto add = [&](const at::Tensor& tensor) {
      if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
    };
    for (const at::Tensor& parameter : parameters) {
      add(parameter);
      auto& state =
          static_cast<ulp::amp::FusedParamState&>(*optimizer.state().at(parameter.unsafeGetTensorImpl()));
      add(state.master);
      ulp::amp::for_each_moment(state, [&](const ulp::amp::MomentTensors& moment) {
        add(moment.values);
        add(moment.absmax);
      });
    }
    return bytes;
  }
};

double seconds_of_step(Run& run, at::Device device, int steps) {
  const auto wait = [&] {
    if (device.is_cuda()) torch::cuda::synchronize();
  };
  wait();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) run.optimizer.step();
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / steps;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

int run_all(const std::string& model, int turns, at::Device device, const std::string& json_path) {
  const auto config =
      model == "bert-large" ? ulp::models::BertConfig::large() : ulp::models::BertConfig::base();
  std::vector<std::vector<int64_t>> shapes;
  int64_t count = 0;
  for (const at::Tensor& parameter : ulp::models::make_bert(config)->parameters()) {
    shapes.push_back(parameter.sizes().vec());
    count += parameter.numel();
  }
  std::printf("%s, %lld parameters on %s\n%-28s %10s %9s %18s\n", model.c_str(),
              static_cast<long long>(count), device.str().c_str(), "way", "ms a step", "speedup",
              "bytes a parameter");
  nlohmann::ordered_json json = {
      {"model", model}, {"parameters", count}, {"turns", turns}, {"ways", nlohmann::ordered_json::array()}};
  double first = 0;
  for (const Way& way : kWays) {
    if (device.is_cpu() && way.update == DeviceUpdate::kernels) continue;  // of CUDA
    // One way at a time: all of them would not fit beside each other.
    Run run(way, shapes, device);
    const int steps = device.is_cuda() ? 20 : 2;
    seconds_of_step(run, device, 3);  // makes the state, compiles the kernels
    std::vector<double> seconds;
    for (int turn = 0; turn < turns; ++turn) seconds.push_back(seconds_of_step(run, device, steps));
    const double time = median(seconds);
    if (first == 0) first = time;
    const double bytes = static_cast<double>(run.kept_bytes()) / static_cast<double>(count);
    std::printf("%-28s %10.3f %9.2f %18.2f\n", way.name, time * 1e3, first / time, bytes);
    json["ways"].push_back(
        {{"way", way.name}, {"seconds", time}, {"speedup", first / time}, {"bytes_a_parameter", bytes}});
  }
  if (json_path.empty()) return 0;
  std::ofstream out(json_path);
  out << json.dump(1) << std::endl;
  if (!out) ulp::fail("gpu_optimizer_bench", "could not write '", json_path, "'");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string model = "bert-large", json;
    int turns = 5, positional = 0;
    bool on_cpu = false;
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (word == "--cpu") {
        on_cpu = true;
      } else if (word == "--json" && i + 1 < argc) {
        json = argv[++i];
      } else if (positional == 0 && (word == "bert-base" || word == "bert-large")) {
        model = word;
        ++positional;
      } else if (positional == 1 && std::atoi(word.c_str()) > 0) {
        turns = std::atoi(word.c_str());
        ++positional;
      } else {
        ulp::fail("gpu_optimizer_bench",
                  "expected [bert-base|bert-large [turns]] [--json FILE] [--cpu], got '", word, "'");
      }
    }
    if (!on_cpu && !torch::cuda::is_available()) {
      std::fprintf(stderr, "gpu_optimizer_bench: LibTorch can use no GPU here\n");
      return 2;
    }
    return run_all(model, turns, on_cpu ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0), json);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_optimizer_bench: %s\n", error.what());
    return 1;
  }
}
