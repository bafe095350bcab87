// What bench/peers/gguf_check.py compares with the Python package `gguf`.
//   gguf_values read FILE.gguf OUT.safetensors          the values of each tensor, and as "NAME.codes" what its codes stand for
//   gguf_values write q8_0|q4_0|f32 OUT.gguf OUT.safetensors    a GPT-2 of random weights, and the weights
#include <torch/torch.h>

#include <iostream>

#include "ulp/base/error.h"
#include "ulp/exchange/gguf.h"
#include "ulp/io/safetensors.h"
#include "ulp/models/gpt2.h"
#include "ulp/quant/weights/weights.h"

namespace {

using namespace ulp;

void read(const std::string& path, const std::string& out) {
  io::NamedTensors values;
  for (const exchange::GgufTensor& tensor : exchange::import_gguf(std::filesystem::path(path)).tensors) {
    values.emplace_back(tensor.name, tensor.values);
    if (!tensor.codes) continue;
    values.emplace_back(tensor.name + ".codes", quant::dequantize_weight(*tensor.codes));
  }
  io::save_tensors(out, values);
}

void write(const std::string& type, const std::string& path, const std::string& out) {
  torch::manual_seed(7);
  const auto model =
      models::make_gpt2({.vocab_size = 300, .max_length = 20, .width = 64, .layers = 2, .heads = 4});
  const torch::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.normal_(0, 0.3);
  exchange::export_gguf(
      *model, path, {.type = require_word<exchange::GgufType>("gguf_values", "a type", type), .heads = 4});
  io::save_model(out, *model);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 3 && words[0] == "read") {
    read(words[1], words[2]);
  } else if (words.size() == 4 && words[0] == "write") {
    write(words[1], words[2], words[3]);
  } else {
    std::cerr << "usage: gguf_values read FILE OUT | write q8_0|q4_0|f32 FILE OUT\n";
    return 2;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
