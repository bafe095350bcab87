// Adapters beside frozen weights in each format: the memory and the time of training steps, and curves of the
// loss.
//
//   lora_bench memory [width layers inner length batch]   a decoder of random weights, by default of 100 M
//   lora_bench loss TEXT [steps]   a small decoder that learned the first half of a text trains on the second
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/base/enum_names.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/lora/add_lora.h"
#include "ulp/measure/memory_meter.h"
#include "ulp/models/decoder.h"

namespace {

using namespace ulp;
using at::Tensor;

models::DecoderConfig config_of(int64_t width, int64_t layers, int64_t inner, int64_t length) {
  models::DecoderConfig config;
  config.vocab_size = 256;
  config.width = width;
  config.layers = layers;
  config.heads = config.kv_heads = std::max<int64_t>(2, width / 64);
  config.head_size = width / config.heads;
  config.intermediate = inner;
  config.max_length = length;
  return config;
}

std::shared_ptr<graph::GraphModule> captured(const models::DecoderConfig& config) {
  torch::manual_seed(1);
  const auto model = models::make_decoder(config);
  return capture(*model, {torch::ones({2, config.max_length}, torch::kLong)});
}

double step(graph::GraphModule& model, torch::optim::Optimizer& optimizer, const Tensor& tokens) {
  optimizer.zero_grad();
  Tensor logits;
  {
    const amp::Autocast bf16(torch::kCPU, torch::kBFloat16);
    logits = model.forward(tokens.narrow(1, 0, tokens.size(1) - 1));
  }
  const Tensor loss = torch::nn::functional::cross_entropy(logits.to(torch::kFloat).flatten(0, 1),
                                                           tokens.narrow(1, 1, tokens.size(1) - 1).flatten());
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

struct Base {
  lora::LoraBase format;
  bool double_quant = false;
  std::string name() const { return std::string(enum_name(format)) + (double_quant ? " twice" : ""); }
};
const std::vector<Base> kBases = {{lora::LoraBase::bf16}, {lora::LoraBase::fp32},
                                  {lora::LoraBase::int8}, {lora::LoraBase::int4},
                                  {lora::LoraBase::nf4},  {lora::LoraBase::nf4, true}};

lora::LoraOptions options_of(const Base& base) {
  return {.rank = 16,
          .alpha = 32,
          .target_modules = {"q_proj", "v_proj"},
          .base = base.format,
          .double_quant = base.double_quant};
}

double mega(int64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

/// Live memory before the steps, the peak in them, and their time.
void measure_steps(const std::string& name, int64_t base_bytes, int64_t live, graph::GraphModule& model,
                   int64_t length, int64_t batch) {
  constexpr int kSteps = 3;
  const measure::MemoryMeter meter;
  model.train();
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3));
  const Tensor tokens = torch::randint(0, 256, {batch, length + 1});
  step(model, optimizer, tokens);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kSteps; ++i) step(model, optimizer, tokens);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kSteps;
  std::printf("%-10s %10.1f %10.1f %10.1f %10.2f\n", name.c_str(), mega(base_bytes), mega(live),
              mega(live + meter.peak_bytes()), seconds);
  std::fflush(stdout);
}

void memory(const models::DecoderConfig& config, int64_t batch) {
  int64_t parameters = 0;
  std::printf("%-10s %10s %10s %10s %10s\n", "base", "base MB", "live MB", "peak MB", "s / step");
  for (const Base& base : kBases) {
    std::shared_ptr<lora::LoraModel> model;
    int64_t live = 0;
    {
      const measure::MemoryMeter meter;
      model = lora::add_lora(captured(config), options_of(base));
      live = meter.live_bytes();
    }
    measure_steps(base.name(), model->base_bytes(), live, *model, config.max_length, batch);
  }
  std::shared_ptr<graph::GraphModule> whole;
  int64_t live = 0;
  {
    const measure::MemoryMeter meter;
    whole = captured(config);
    live = meter.live_bytes();
  }
  for (const Tensor& one : whole->parameters()) parameters += one.numel();
  measure_steps("all train", 4 * parameters, live, *whole, config.max_length, batch);
  std::printf("%.1f M parameters, batch %lld of %lld tokens\n", static_cast<double>(parameters) / 1e6,
              static_cast<long long>(batch), static_cast<long long>(config.max_length));
}

/// Windows of the text at random places, the same in each run.
class Windows {
 public:
  Windows(std::string text, int64_t length) : text_(std::move(text)), length_(length) { at::manual_seed(5); }
  Tensor draw(int64_t batch) const {
    const auto most = static_cast<int64_t>(text_.size()) - length_ - 1;
    const Tensor starts = torch::randint(0, most, {batch});
    Tensor tokens = torch::empty({batch, length_ + 1}, torch::kLong);
    for (int64_t i = 0; i < batch; ++i) {
      for (int64_t t = 0; t <= length_; ++t)
        tokens[i][t] = static_cast<unsigned char>(text_[static_cast<size_t>(starts[i].item<int64_t>() + t)]);
    }
    return tokens;
  }

 private:
  std::string text_;
  int64_t length_;
};

void loss(const std::string& file, int64_t steps) {
  constexpr int64_t kLength = 64, kBatch = 16, kWindow = 25;
  std::ifstream in(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto trained = captured(config_of(128, 2, 352, kLength));
  {
    const Windows first(text.substr(0, text.size() / 2), kLength);
    torch::optim::AdamW optimizer(trained->parameters(), torch::optim::AdamWOptions(2e-3));
    for (int64_t i = 0; i < 2 * steps; ++i) step(*trained, optimizer, first.draw(kBatch));
  }
  std::map<std::string, std::vector<double>> curves;
  for (const Base& base : kBases) {
    torch::manual_seed(2);
    lora::LoraOptions options = options_of(base);
    options.target_modules = {"all-linear"};
    const auto model = lora::add_lora(trained, options);
    model->train();
    const Windows second(text.substr(text.size() / 2), kLength);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(2e-3));
    std::vector<double>& curve = curves[base.name()];
    for (int64_t i = 0; i < steps; ++i) curve.push_back(step(*model, optimizer, second.draw(kBatch)));
  }
  const auto mean = [&](const std::string& name, int64_t from) {
    double sum = 0;
    for (int64_t i = from; i < from + kWindow; ++i) sum += curves[name][static_cast<size_t>(i)];
    return sum / kWindow;
  };
  std::printf("%-10s", "steps");
  for (const Base& base : kBases) std::printf(" %10s", base.name().c_str());
  std::printf("\n");
  for (int64_t from = 0; from + kWindow <= steps; from += kWindow) {
    std::printf("%4lld..%-4lld", static_cast<long long>(from), static_cast<long long>(from + kWindow));
    for (const Base& base : kBases) std::printf(" %10.4f", mean(base.name(), from));
    std::printf("\n");
  }
  for (const Base& base : kBases) {
    double most = 0;
    for (int64_t from = 0; from + kWindow <= steps; from += kWindow)
      most = std::max(most, std::abs(mean(base.name(), from) / mean("bf16", from) - 1));
    std::printf("%-10s at most %.2f %% from bf16 in any %lld steps\n", base.name().c_str(), 100 * most,
                static_cast<long long>(kWindow));
  }
}

int64_t number(int argc, char** argv, int index, int64_t otherwise) {
  return index < argc ? std::stoll(argv[index]) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "memory";
  amp::prepare_training_memory();
  if (mode == "loss" && argc > 2) {
    loss(argv[2], number(argc, argv, 3, 200));
  } else if (mode == "memory") {
    memory(config_of(number(argc, argv, 2, 768), number(argc, argv, 3, 14), number(argc, argv, 4, 2048),
                     number(argc, argv, 5, 128)),
           number(argc, argv, 6, 1));
  } else {
    std::fprintf(stderr, "lora_bench memory [width layers inner length batch] | loss TEXT [steps]\n");
    return 2;
  }
  return 0;
}
