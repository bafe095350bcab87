// Training steps of whole networks, compiled and in LibTorch, from random weights on one random batch: forward, cross-entropy,
// backward, update. Prints one line of JSON a way: median seconds, bytes of tensors at the peak of a
// step beside weights and moments, and the last loss.
//   compiled_networks_bench NETWORK [--batch N] [--length N] [--dropout P] [--precision fp32|bf16] [--steps N] [--threads N]
// NETWORK: bert-base, gpt2, lstm (2 x 512), resnet50, mobilenet_v2, unet (7.7 M), resnet14.
#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/measure/memory_meter.h"
#include "ulp/models/bert.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/registry.h"
#include "ulp/models/unet.h"
#include "ulp/train/compile/compiled_step.h"

namespace {

struct Flags {
  std::string network, precision = "fp32";
  int64_t batch = 0, length = 0, steps = 5;
  int threads = 0;
  double dropout = 0;
};

/// A network, its batch, and how its loss reads logits.
struct Subject {
  std::shared_ptr<torch::nn::Module> model;
  std::function<at::Tensor(const at::Tensor&)> forward;
  at::Tensor inputs, classes;
  ulp::train::LossFunction loss = ulp::train::LossFunction::token_cross_entropy();
};

struct LstmClassifier : torch::nn::Module {
  explicit LstmClassifier(int64_t width)
      : lstm(register_module(
            "lstm", torch::nn::LSTM(torch::nn::LSTMOptions(width, width).num_layers(2).batch_first(true)))),
        head(register_module("head", torch::nn::Linear(width, 10))) {}
  at::Tensor forward(const at::Tensor& x) { return head(std::get<0>(lstm(x)).select(1, -1)); }
  torch::nn::LSTM lstm;
  torch::nn::Linear head;
};

Subject text_subject(const Flags& flags, bool gpt2) {
  const int64_t batch = flags.batch > 0 ? flags.batch
                        : gpt2          ? 4
                                        : 16,
                length = flags.length > 0 ? flags.length
                         : gpt2           ? 256
                                          : 128;
  std::shared_ptr<ulp::models::TextModel> model;
  int64_t words = 0;
  if (gpt2) {
    ulp::models::Gpt2Config config = ulp::models::Gpt2Config::small();
    config.dropout = config.attention_dropout = flags.dropout;
    words = config.vocab_size;
    model = ulp::models::make_gpt2(config);
  } else {
    ulp::models::BertConfig config = ulp::models::BertConfig::base();
    config.dropout = config.attention_dropout = flags.dropout;
    words = config.vocab_size;
    model = ulp::models::make_bert(config);
  }
  const at::Tensor tokens = torch::randint(words, {batch, length}, at::kLong);
  const at::Tensor classes =
      gpt2 ? torch::randint(words, {batch, length}, at::kLong) : torch::randint(2, {batch}, at::kLong);
  return {model, [model](const at::Tensor& x) { return model->forward(x); }, tokens, classes};
}

Subject image_subject(const Flags& flags) {
  const bool small = flags.network == "resnet14", unet = flags.network == "unet";
  const int64_t size = flags.length > 0 ? flags.length : small ? 32 : unet ? 128 : 224;
  const int64_t batch = flags.batch > 0               ? flags.batch
                        : small                       ? 128
                        : unet                        ? 4
                        : flags.network == "resnet50" ? 16
                                                      : 32;
  const int64_t classes = small ? 10 : unet ? 2 : 1000;
  const std::shared_ptr<ulp::models::ImageModel> model =
      unet ? ulp::models::make_unet({.width = 32, .depth = 4})
           : ulp::models::make_model(flags.network, {.num_classes = classes, .image_size = size});
  const at::Tensor x = torch::randn({batch, 3, size, size});
  const at::Tensor y = unet ? torch::randint(classes, {batch, size, size}, at::kLong)
                            : torch::randint(classes, {batch}, at::kLong);
  return {model, [model](const at::Tensor& given) { return model->forward(given); }, x, y,
          ulp::train::LossFunction::cross_entropy()};
}

Subject subject_of(const Flags& flags) {
  torch::manual_seed(1);
  if (flags.network == "bert-base" || flags.network == "gpt2")
    return text_subject(flags, flags.network == "gpt2");
  if (flags.network != "lstm") return image_subject(flags);
  const int64_t batch = flags.batch > 0 ? flags.batch : 32, length = flags.length > 0 ? flags.length : 128;
  const auto model = std::make_shared<LstmClassifier>(512);
  return {model, [model](const at::Tensor& x) { return model->forward(x); },
          torch::randn({batch, length, 512}), torch::randint(10, {batch}, at::kLong)};
}

/// Steps after two that are not counted; prints what they took.
void measure(const Flags& flags, const std::string& way, const std::function<double()>& step, int64_t bytes) {
  std::vector<double> seconds;
  double loss = 0;
  for (int64_t i = 0; i < flags.steps + 2; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    loss = step();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (i >= 2) seconds.push_back(took.count());
  }
  std::ranges::nth_element(seconds, seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2));
  nlohmann::json line = {{"way", way},
                         {"network", flags.network},
                         {"precision", flags.precision},
                         {"bytes", bytes},
                         {"seconds", seconds[seconds.size() / 2]},
                         {"loss", loss}};
  std::cout << line << std::endl;
}

void measure_compiled(const Flags& flags, const Subject& subject) {
  const at::Tensor example = subject.inputs.narrow(0, 0, 2);
  const auto graph = ulp::graph::capture(
      *subject.model, [&](const std::vector<at::Tensor>& x) { return c10::IValue(subject.forward(x[0])); },
      {example}, {.far_sizes = false});
  graph->train();
  ulp::amp::FusedOptimizer optimizer(graph->parameters(), ulp::amp::AdamWRule{.lr = 1e-4});
  ulp::train::CompiledStep step =
      ulp::train::compile(graph, subject.loss, optimizer,
                          {.max_batch = subject.inputs.size(0),
                           .dropout_seed = 1,
                           .threads = flags.threads,
                           .products = flags.precision == "bf16" ? ulp::train::ProductType::bf16
                                                                 : ulp::train::ProductType::fp32});
  int64_t gradients = 0;
  for (const at::Tensor& parameter : graph->parameters())
    gradients += static_cast<int64_t>(parameter.nbytes());
  measure(
      flags, "compiled", [&] { return double{step.step(subject.inputs, subject.classes)}; },
      step.arena_bytes() + gradients);
}

void measure_torch(const Flags& flags, const Subject& subject) {
  subject.model->train();
  torch::optim::AdamW optimizer(subject.model->parameters(), torch::optim::AdamWOptions(1e-4));
  const bool images = subject.inputs.dim() == 4;
  const at::Tensor inputs =
      images ? subject.inputs.contiguous(at::MemoryFormat::ChannelsLast) : subject.inputs;
  if (images) {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : subject.model->parameters())
      if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  }
  const auto step = [&] {
    optimizer.zero_grad();
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, flags.precision == "bf16");
    at::Tensor logits = subject.forward(inputs);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    if (logits.dim() == 3) logits = logits.flatten(0, 1);
    const at::Tensor classes = logits.dim() == 2 ? subject.classes.flatten() : subject.classes;
    const at::Tensor loss = torch::cross_entropy_loss(logits.to(at::kFloat), classes);
    loss.backward();
    optimizer.step();
    return loss.item<double>();
  };
  step();  // makes the moments
  optimizer.zero_grad();
  int64_t bytes = 0;
  {
    const ulp::measure::MemoryMeter meter;
    step();
    bytes = meter.peak_bytes();
  }
  measure(flags, "LibTorch", step, bytes);
}

std::optional<Flags> parse(int count, char** words) {
  Flags flags;
  const std::map<std::string, std::function<void(const std::string&)>> known = {
      {"--batch", [&](const std::string& v) { flags.batch = std::stoll(v); }},
      {"--length", [&](const std::string& v) { flags.length = std::stoll(v); }},
      {"--steps", [&](const std::string& v) { flags.steps = std::stoll(v); }},
      {"--threads", [&](const std::string& v) { flags.threads = std::stoi(v); }},
      {"--dropout", [&](const std::string& v) { flags.dropout = std::stod(v); }},
      {"--precision", [&](const std::string& v) { flags.precision = v; }}};
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto found = known.find(word);
    if (found != known.end() && i + 1 < count) {
      found->second(words[++i]);
    } else if (found == known.end() && flags.network.empty()) {
      flags.network = word;
    } else {
      return std::nullopt;
    }
  }
  if (flags.network.empty() || flags.steps < 1) return std::nullopt;
  return flags;
}

}  // namespace

int main(int count, char** words) try {
  const std::optional<Flags> flags = parse(count, words);
  if (!flags) {
    std::cerr << "compiled_networks_bench NETWORK [--batch N] [--length N] [--dropout P] [--precision "
                 "fp32|bf16] [--steps N] "
                 "[--threads N]\n";
    return 2;
  }
  if (flags->threads > 0) at::set_num_threads(flags->threads);
  measure_compiled(*flags, subject_of(*flags));
  measure_torch(*flags, subject_of(*flags));
  return 0;
} catch (const std::exception& error) {
  std::cerr << "compiled_networks_bench: " << error.what() << '\n';
  return 1;
}
