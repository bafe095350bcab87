// Writes networks of usual size, with random weights, for a comparison of runtimes:
//   peer_networks FOLDER [NETWORK...]
// FOLDER/NAME.onnx in f32; engine files NAME.fp32.ulp, NAME.bf16.ulp, and NAME.static.ulp, NAME.dynamic.ulp, NAME.weights8.ulp
// and NAME.weights4.ulp where the network has such; NAME.x.npy with 16 inputs and NAME.y.npy with what LibTorch computes of them.
// bench/peers/networks.py measures them. gpt2_decode has NAME.safetensors with its parameters for an ONNX file, and engines that
// continue a text of up to 128 tokens; bench/peers/decoding.py measures those.
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/peer_modules.h"
#include "bench/random_networks.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/io/safetensors.h"
#include "ulp/models/bert.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/lstm.h"
#include "ulp/models/registry.h"
#include "ulp/models/unet.h"
#include "ulp/ulp.h"

namespace {

using Module = std::shared_ptr<ulp::graph::GraphModule>;
constexpr int64_t kLength = 128, kSamples = 16, kSide = 224;
constexpr const char* kTime = "time";

/// A network and inputs for it.
struct Network {
  Module module;
  std::function<torch::Tensor(int64_t batch)> inputs;
  bool text;
  std::string continued;  ///< the dimension along which runs continue each other; empty: each stands alone
};

Network image_network(const std::shared_ptr<ulp::models::ImageModel>& model, int64_t side) {
  const auto images = [=](int64_t batch) { return torch::randn({batch, 3, side, side}); };
  ulp::bench::settle(*model);
  model->train();
  for (int i = 0; i < 2; ++i) model->forward(images(4));
  model->eval();
  Module module = ulp::capture(*model, {images(2)});
  module->eval();
  return {module, images, false, ""};
}

Network text_network(const std::shared_ptr<ulp::models::TextModel>& model, int64_t vocabulary,
                     bool decodes = false) {
  const auto tokens = [=](int64_t batch) { return torch::randint(1, vocabulary, {batch, kLength}); };
  model->eval();
  ulp::graph::CaptureOptions options;
  options.modes = ulp::graph::Modes::eval_only;
  if (decodes) options.free = {{0, 1, kTime}};
  Module module = ulp::capture(model, {tokens(2)}, options);
  module->eval();
  return {module, tokens, true, decodes ? kTime : ""};
}

struct Entry {
  const char* name;
  Network (*make)();
};

Network classifier(const char* name) {
  return image_network(ulp::models::make_model(name, {.num_classes = 1000, .image_size = kSide}), kSide);
}

constexpr Entry kNetworks[] = {
    {"resnet50", [] { return classifier("resnet50"); }},
    {"mobilenet_v2", [] { return classifier("mobilenet_v2"); }},
    {"mobilenet_v3", [] { return image_network(ulp::bench::make_mobilenet_v3(), kSide); }},
    {"efficientnet_b0", [] { return image_network(ulp::bench::make_efficientnet_b0(), kSide); }},
    {"vit_tiny", [] { return image_network(ulp::bench::make_vit_tiny(), kSide); }},
    {"unet", [] { return image_network(ulp::models::make_unet({.width = 32}), 256); }},
    {"bert", [] { return text_network(ulp::models::make_bert(ulp::models::BertConfig::base()), 30000); }},
    {"gpt2", [] { return text_network(ulp::models::make_gpt2(), 50257); }},
    {"gpt2_decode", [] { return text_network(ulp::models::make_gpt2(), 50257, true); }},
    {"lstm",
     [] {
       const ulp::models::LstmConfig config{.embedding = 1024, .hidden = 1024, .layers = 2};
       return text_network(ulp::models::make_lstm(config), 256);
     }},
};

Module calibrated(const Network& network) {
  const auto prepared = ulp::quant::prepare(network.module, ulp::quant::Recipe::x86_int8());
  for (int i = 0; i < 4; ++i) prepared->forward(network.inputs(2));
  return ulp::quant::convert(prepared);
}

void write_network(const std::filesystem::path& folder, const Entry& entry) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  const Network network = entry.make();
  const auto at = [&](const std::string& ending) { return folder / (std::string(entry.name) + ending); };
  const bool decodes = !network.continued.empty();
  if (decodes) {
    ulp::io::save_model(at(".safetensors"), *network.module);
  } else {
    ulp::exchange::export_onnx(*network.module, at(".onnx"), {.opset = 17});
  }
  const torch::Tensor x = network.inputs(kSamples);
  ulp::bench::write_npy(at(".x.npy"), x);
  ulp::bench::write_npy(at(".y.npy"), network.module->forward(x));
  using Precision = ulp::LowerOptions::Precision;
  const auto write = [&](const Module& module, const std::string& kind,
                         Precision precision = Precision::f32) {
    ulp::lower(*module, {.precision = precision, .continued = network.continued})
        .save(at("." + kind + ".ulp"));
  };
  write(network.module, "fp32");
  write(network.module, "bf16", Precision::bf16);
  if (std::string(entry.name) != "lstm") write(calibrated(network), "static");
  if (network.text) {
    write(ulp::quant::quantize_dynamic(network.module), "dynamic");
    for (const int bits : {8, 4})
      write(ulp::quant::quantize_weights(network.module, {.bits = bits}), "weights" + std::to_string(bits));
  }
  std::printf("%s\n", entry.name);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2 || argv[1][0] == '-') return std::fputs("peer_networks FOLDER [NETWORK...]\n", stderr), 2;
    const std::vector<std::string> wanted(argv + 2, argv + argc);
    for (const std::string& name : wanted) {
      if (std::ranges::find(kNetworks, name, &Entry::name) == std::end(kNetworks))
        return std::fprintf(stderr, "peer_networks: no network '%s'\n", name.c_str()), 2;
    }
    std::filesystem::create_directories(argv[1]);
    for (const Entry& entry : kNetworks) {
      if (wanted.empty() || std::find(wanted.begin(), wanted.end(), entry.name) != wanted.end())
        write_network(argv[1], entry);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peer_networks: %s\n", error.what());
    return 1;
  }
}
