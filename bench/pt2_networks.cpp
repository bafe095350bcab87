// Writes networks as .pt2 archives of torch.export, with random weights, and beside each what it computes
// here:
//   pt2_networks FOLDER FORM [NETWORK...]
// FORM is float or int8 (static, calibrated on 8 random inputs; networks of images). FOLDER/NAME.pt2, and for
// batches of 1 and 7 FOLDER/NAME.BATCH.xI.npy, its inputs, and FOLDER/NAME.BATCH.yI.npy, the results,
// computed on one thread. bench/peers/pt2_check.py compares PyTorch with them. Each archive is read back by
// our own reader; that fails unless it gives the same bits.
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/network_cases.h"
#include "ulp/base/error.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/import_pt2.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"
#include "ulp/ulp.h"

namespace {

using ulp::bench::Module;

/// A network, and what it takes at a batch.
struct Network {
  Module module = nullptr;
  std::function<std::vector<torch::Tensor>(int64_t batch)> inputs;
};

/// LSTM and GRU layers of two directions over sequences of a free length; two results.
struct RecurrentImpl : torch::nn::Module {
  torch::nn::LSTM lstm{torch::nn::LSTMOptions(12, 16).num_layers(2).bidirectional(true).batch_first(true)};
  torch::nn::GRU gru{torch::nn::GRUOptions(32, 10).batch_first(true)};
  torch::nn::Linear head{10, 3};
  RecurrentImpl() {
    register_module("lstm", lstm);
    register_module("gru", gru);
    register_module("head", head);
  }
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) {
    const auto [all, state] = gru(std::get<0>(lstm(x)));
    return {head(all), state.squeeze(0)};
  }
};
TORCH_MODULE(Recurrent);

/// Two inputs of different types and lengths, attention of one to the other, a buffer, a tied weight, and a
/// dictionary of results.
struct TwoInputsImpl : torch::nn::Module {
  torch::nn::Embedding words{64, 24};
  torch::nn::Linear query{24, 24}, key{8, 24};
  torch::Tensor steps;
  TwoInputsImpl() {
    register_module("words", words);
    register_module("query", query);
    register_module("key", key);
    steps = register_buffer("steps", torch::linspace(0, 1, 32).unsqueeze(1));
  }
  std::map<std::string, torch::Tensor> forward(const torch::Tensor& ids, const torch::Tensor& frames) {
    const torch::Tensor x = words(ids) + steps.slice(0, 0, ids.size(1));
    const torch::Tensor k = key(frames);
    const torch::Tensor read = torch::scaled_dot_product_attention(query(x), k, k);
    const torch::Tensor logits = torch::nn::functional::linear(x + read, words->weight);
    return {{"logits", logits}, {"pooled", std::get<0>(read.max(1))}};
  }
};
TORCH_MODULE(TwoInputs);

/// Layers of one and three dimensions, transposed ones and norms of other kinds.
struct VolumesImpl : torch::nn::Module {
  torch::nn::Conv3d conv{torch::nn::Conv3dOptions(2, 6, 3).padding(1).stride(2)};
  torch::nn::GroupNorm norm{torch::nn::GroupNormOptions(3, 6)};
  torch::nn::ConvTranspose3d up{torch::nn::ConvTranspose3dOptions(6, 4, 2).stride(2)};
  torch::nn::Conv1d line{torch::nn::Conv1dOptions(4, 5, 3).padding(2).dilation(2)};
  VolumesImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("up", up);
    register_module("line", line);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = torch::elu(up(torch::silu(norm(conv(x)))));
    return torch::hardswish(line(torch::avg_pool3d(y, {2, 2, 2}, {2, 2, 2}).flatten(2)));
  }
};
TORCH_MODULE(Volumes);

Network recurrent() {
  Recurrent model;
  model->eval();
  ulp::graph::CaptureOptions options;
  options.free = {{0, 1, "time", 20}};
  return {ulp::capture(model, {torch::randn({2, 20, 12})}, options), [](int64_t batch) {
            return std::vector<torch::Tensor>{torch::randn({batch, batch == 1 ? 20 : 13, 12})};
          }};
}

Network two_inputs() {
  TwoInputs model;
  model->eval();
  ulp::graph::CaptureOptions options;
  options.free = {{0, 1, "words", 20}, {1, 1, "frames", 40, 4, 4}};
  options.input_names = {"ids", "frames"};
  return {ulp::capture(model, {torch::ones({2, 20}, torch::kLong), torch::randn({2, 40, 8})}, options),
          [](int64_t batch) {
            return std::vector<torch::Tensor>{
                torch::randint(0, 64, {batch, batch == 1 ? 20 : 9}, torch::kLong),
                torch::randn({batch, batch == 1 ? 4 : 28, 8})};
          }};
}

Network volumes() {
  Volumes model;
  model->eval();
  return {ulp::capture(model, {torch::randn({2, 2, 8, 6, 4})}), [](int64_t batch) {
            return std::vector<torch::Tensor>{torch::randn({batch, 2, 8, 6, 4})};
          }};
}

Network network(const std::string& name) {
  if (name == "recurrent") return recurrent();
  if (name == "two_inputs") return two_inputs();
  if (name == "volumes") return volumes();
  const ulp::bench::Case made = ulp::bench::network_case(name);
  return {made.module,
          [input = made.input](int64_t batch) { return std::vector<torch::Tensor>{input(batch)}; }};
}

/// Static int8, calibrated on 8 inputs.
Module static_network(const Network& made) {
  const auto prepared = ulp::quant::prepare(made.module, ulp::quant::Recipe::onnx_qdq());
  prepared->forward_all(made.inputs(8));
  return ulp::quant::convert(prepared);
}

void write_all(const std::string& stem, const char* kind, const std::vector<torch::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i)
    ulp::bench::write_npy(stem + "." + kind + std::to_string(i) + ".npy", tensors[i]);
}

void write_case(const std::filesystem::path& folder, const std::string& name, const std::string& form) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  const Network made = network(name);
  const Module module = form == "int8" ? static_network(made) : made.module;
  module->eval();
  const std::filesystem::path path = folder / (name + ".pt2");
  ulp::exchange::export_pt2(*module, path);
  const Module again = ulp::exchange::import_pt2(path);
  for (const int64_t batch : {1, 7}) {
    const std::vector<torch::Tensor> inputs = made.inputs(batch), results = module->forward_all(inputs);
    const std::string stem = (folder / name).string() + "." + std::to_string(batch);
    write_all(stem, "x", inputs);
    write_all(stem, "y", results);
    const std::vector<torch::Tensor> read = again->forward_all(inputs);
    for (size_t i = 0; i < results.size(); ++i) {
      if (!read.at(i).equal(results[i]))
        ulp::fail("pt2_networks", "expected '", path.string(), "' to come back with the same bits");
    }
  }
  std::printf("%s\n", name.c_str());
  std::fflush(stdout);
}

std::vector<std::string> all_names(const std::string& form) {
  std::vector<std::string> names = ulp::models::model_names();
  if (form == "int8") {
    std::erase_if(names, [](const std::string& name) { return name.starts_with("binary"); });
    return names;
  }
  for (const std::string& text : ulp::models::text_model_names()) names.push_back(text);
  for (const char* own : {"recurrent", "two_inputs", "volumes"}) names.emplace_back(own);
  return names;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) return std::fputs("pt2_networks FOLDER FORM [NETWORK...]\n", stderr), 2;
    const std::string form = argv[2];
    if (form != "float" && form != "int8") return std::fputs("pt2_networks: no such form\n", stderr), 2;
    std::vector<std::string> names(argv + 3, argv + argc);
    if (names.empty()) names = all_names(form);
    std::filesystem::create_directories(argv[1]);
    torch::set_num_threads(1);
    for (const std::string& name : names) write_case(argv[1], name, form);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pt2_networks: %s\n", error.what());
    return 1;
  }
}
