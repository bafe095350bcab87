// Writes reference networks as ONNX files, with random weights, and beside each what it computes here:
//   onnx_networks FOLDER FORM [OPSET [NETWORK...]]
// FORM is float, fp16 (y is what float gives), int8 (static), dynamic or dynamic-tensor (int8 with a scale a row or for all), weights8 or
// weights4 (weights alone). FOLDER/NAME.onnx, and for batches of 1 and 7 FOLDER/NAME.BATCH.x.npy and FOLDER/NAME.BATCH.y.npy. int8
// calibrates on 8 random images; a second result, z, is the last quantized activation. Of weights alone FOLDER/NAME.w.CODES.npy has the
// numbers of the tensor CODES. bench/peers/onnx_check.py compares other
// runtimes with them.
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/network_cases.h"
#include "bench/random_networks.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/quant/weights/weights.h"
#include "ulp/ulp.h"

namespace {

using ulp::bench::write_npy;
using ulp::bench::Case;
using ulp::bench::Module;

Module quantized(const Module& module, const std::string& form) {
  if (form.starts_with("dynamic"))
    return ulp::quant::quantize_dynamic(module, {.per_tensor = form == "dynamic-tensor"});
  if (form.starts_with("weights"))
    return ulp::quant::quantize_weights(module, {.bits = form == "weights4" ? 4 : 8});
  return module;
}

/// The numbers of each weight in codes.
void write_weights(const std::filesystem::path& stem, const ulp::graph::Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (!node->is("ulp::dequantize_weight")) continue;
    const auto tensor = [&](const char* argument) {
      return graph.attribute_tensor(node->arg(argument).value);
    };
    const bool zeros = node->arg("zero_point").is_value();
    const torch::Tensor values = ulp::quant::dequantize_weight(
        tensor("codes"), tensor("scale"), zeros ? std::optional(tensor("zero_point")) : std::nullopt,
        node->arg("columns").literal.toInt());
    write_npy(stem.string() + ".w." + node->arg("codes").value->producer->target() + ".npy", values);
  }
}

void write_case(const std::filesystem::path& folder, const std::string& name, const std::string& form,
                int64_t opset) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  const Case made = ulp::bench::network_case(name, form == "int8");
  const Module module = quantized(made.module, form);
  ulp::exchange::export_onnx(*module, folder / (name + ".onnx"), {.opset = opset, .fp16 = form == "fp16"});
  write_weights(folder / name, std::as_const(*module).graph());
  for (const int64_t batch : {1, 7}) {
    const torch::Tensor x = made.input(batch);
    const std::vector<torch::Tensor> results = module->forward_all({x});
    const std::string stem = name + "." + std::to_string(batch);
    write_npy(folder / (stem + ".x.npy"), x);
    for (size_t i = 0; i < results.size(); ++i)
      write_npy(folder / (stem + (i == 0 ? ".y.npy" : ".z.npy")), results[i]);
  }
  std::printf("%s\n", name.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) return std::fputs("onnx_networks FOLDER FORM [OPSET [NETWORK...]]\n", stderr), 2;
    const std::string form = argv[2];
    const std::vector<std::string> forms = {"float",          "fp16",     "int8",    "dynamic",
                                            "dynamic-tensor", "weights8", "weights4"};
    if (std::ranges::find(forms, form) == forms.end())
      return std::fputs("onnx_networks: no such form\n", stderr), 2;
    const int64_t opset = argc > 3 ? std::atoi(argv[3]) : 21;
    std::vector<std::string> names(argv + std::min(argc, 4), argv + argc);
    if (names.empty()) {
      names = ulp::models::model_names();
      if (form != "float" && form != "fp16")
        std::erase_if(names, [](const auto& name) { return name.starts_with("bi"); });
      if (form != "int8")
        for (const std::string& text : ulp::models::text_model_names()) names.push_back(text);
    }
    std::filesystem::create_directories(argv[1]);
    for (const std::string& name : names) write_case(argv[1], name, form, opset);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "onnx_networks: %s\n", error.what());
    return 1;
  }
}
