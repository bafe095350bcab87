// Writes reference networks as ONNX files, with random weights, and beside each what it computes here:
//   onnx_networks FOLDER FORM [OPSET [NETWORK...]]
// FORM is float, fp16 (y is what float gives), int8 or int7 (static; weights of 7 bits are for processors without VNNI), dynamic or
// dynamic-tensor (int8 with a scale a row or for all), weights8 or weights4 (weights alone). FOLDER/NAME.onnx, and for batches of 1 and 7
// FOLDER/NAME.BATCH.x.npy and FOLDER/NAME.BATCH.y.npy. Static forms calibrate on 8 random images; a second result, z, is the last
// quantized activation; y and z are the engine's, and FOLDER/NAME.BATCH.q.CODES.npy has the codes that it gives each activation.
// Of weights alone FOLDER/NAME.w.CODES.npy has the numbers of the tensor CODES. bench/peers/onnx_check.py compares other runtimes with
// them.
//   onnx_networks FOLDER large
// One layer of 2.4 GB, which needs a second file.
// All files but those of fp16 are read back by our own reader; that fails unless it gives the same bits.
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/network_cases.h"
#include "bench/random_networks.h"
#include "ulp/base/error.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"
#include "ulp/quant/weights/dynamic.h"
#include "ulp/quant/weights/weights.h"
#include "ulp/ulp.h"

namespace {

using ulp::bench::Case;
using ulp::bench::Module;
using ulp::bench::write_npy;

bool is_static(const std::string& form) {
  return form == "int8" || form == "int7";
}

/// What makes codes of activations, in the order of computation.
std::vector<ulp::graph::Node*> quantizers(ulp::graph::Graph& graph) {
  std::vector<ulp::graph::Node*> found;
  for (const auto& node : graph.nodes()) {
    if (node->is("ulp::quantize") || node->is("ulp::average_codes")) found.push_back(node.get());
  }
  return found;
}

/// An activation in codes, as numbers.
struct Activation {
  ulp::graph::Value* value = nullptr;
  std::string codes;                 ///< their name
  double scale = 0, zero_point = 0;  ///< of codes in u8
};

Activation numbers_of(ulp::graph::Graph& graph, const ulp::graph::Node& quantizer) {
  const bool average = quantizer.is("ulp::average_codes");
  ulp::graph::Value* codes = quantizer.output();
  ulp::graph::Value* scale = quantizer.arg(average ? "result_scale" : "scale").value;
  ulp::graph::Value* zero = quantizer.arg(average ? "result_zero_point" : "zero_point").value;
  const double moved = codes->meta->dtype == at::kChar ? 128 : 0;
  ulp::graph::Value* numbers =
      graph.call("ulp::dequantize", {codes, scale, zero, c10::IValue(int64_t{-1})})->output();
  numbers->meta = codes->meta;
  numbers->meta->dtype = at::kFloat;
  return {numbers, codes->name, graph.attribute_tensor(scale).item<double>(),
          graph.attribute_tensor(zero).item<double>() + moved};
}

/// Static int8, calibrated on 8 inputs; a second result is the last activation in codes, as numbers.
Module static_network(const Case& made, const std::string& form) {
  ulp::quant::Recipe recipe = ulp::quant::Recipe::onnx_qdq();
  if (form == "int7") recipe.weight.scheme.bits = 7;
  const auto prepared = ulp::quant::prepare(made.module, recipe);
  prepared->forward(made.input(8));
  const Module module = ulp::quant::convert(prepared);
  ulp::graph::Graph& graph = module->graph();
  graph.set_output(ulp::graph::Argument::tuple(
      {graph.output_node()->args[0], numbers_of(graph, *quantizers(graph).back()).value}));
  module->recompile();
  return module;
}

/// Writes what engines give: results, and the codes of each activation.
class StaticNetwork {
 public:
  /// Makes the activations results of the graph.
  explicit StaticNetwork(Module module)
      : module_(std::move(module)), engine_(ulp::lower(*module_)), all_(lower_all()) {}

  /// Prints in how many elements of z the graph and the engine differ. Throws where codes differ once they are results.
  void write(const std::filesystem::path& stem, const torch::Tensor& x) {
    const std::vector<torch::Tensor> results = ulp::run_engine_all(engine_, {x});
    const std::vector<torch::Tensor> all = ulp::run_engine_all(all_, {x});
    const std::vector<torch::Tensor> graph = module_->forward_all({x});
    if (!results[0].equal(all[0]) || !results[1].equal(all.back()))
      ulp::fail("onnx_networks", "expected the same results with all activations written");
    write_npy(stem.string() + ".y.npy", results[0]);
    write_npy(stem.string() + ".z.npy", results[1]);
    for (size_t i = 0; i < activations_.size(); ++i) {
      const Activation& one = activations_[i];
      const torch::Tensor codes = (all[i + 1].to(torch::kDouble) / one.scale).round() + one.zero_point;
      write_npy(stem.string() + ".q." + one.codes + ".npy", codes.to(torch::kByte));
    }
    const torch::Tensor apart = graph.back().ne(results[1]);
    std::printf("%s: graph and engine differ in %.3f %% of z\n", stem.filename().c_str(),
                100 * apart.to(torch::kDouble).mean().item<double>());
  }

 private:
  ulp::runtime::Plan lower_all() {
    ulp::graph::Graph& graph = module_->graph();
    std::vector<ulp::graph::Argument> results = {graph.output_node()->args[0].items.at(0)};
    for (const ulp::graph::Node* node : quantizers(graph)) {
      activations_.push_back(numbers_of(graph, *node));
      results.emplace_back(activations_.back().value);
    }
    graph.set_output(ulp::graph::Argument::tuple(results));
    module_->recompile();
    return ulp::lower(*module_);
  }

  Module module_;
  std::vector<Activation> activations_;
  ulp::runtime::Engine engine_, all_;
};

Module quantized(const Case& made, const std::string& form) {
  const Module& module = made.module;
  if (is_static(form)) return static_network(made, form);
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

/// Throws unless our own reader gives this result, too.
void expect_read_back(const std::filesystem::path& path, const torch::Tensor& x,
                      const torch::Tensor& expected) {
  constexpr int64_t kMost = int64_t{16} << 30;
  const Module again = ulp::exchange::import_onnx(path, {.longest = ulp::bench::kLength, .max_bytes = kMost});
  if (!again->forward_all({x}).at(0).equal(expected))
    ulp::fail("onnx_networks", "expected '", path.string(), "' to come back with the same bits");
}

void write_large(const std::filesystem::path& folder) {
  constexpr int64_t kFeatures = 24576;
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  torch::nn::Sequential model{torch::nn::Linear(torch::nn::LinearOptions(kFeatures, kFeatures).bias(false))};
  const Module module = ulp::capture(model, {torch::randn({2, kFeatures})});
  const std::filesystem::path path = folder / "large.onnx";
  ulp::exchange::export_onnx(*module, path);
  for (const int64_t batch : {1, 7}) {
    const torch::Tensor x = torch::randn({batch, kFeatures}), y = module->forward(x);
    const std::string stem = (folder / "large").string() + "." + std::to_string(batch);
    write_npy(stem + ".x.npy", x);
    write_npy(stem + ".y.npy", y);
    expect_read_back(path, x, y);
  }
  std::printf("large: %.2f GB, the same bits in our reader\n",
              static_cast<double>(std::filesystem::file_size(path.string() + ".data")) / 1e9);
}

void write_case(const std::filesystem::path& folder, const std::string& name, const std::string& form,
                int64_t opset) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  const Case made = ulp::bench::network_case(name);
  const Module module = quantized(made, form);
  ulp::exchange::export_onnx(*module, folder / (name + ".onnx"), {.opset = opset, .fp16 = form == "fp16"});
  write_weights(folder / name, std::as_const(*module).graph());
  std::unique_ptr<StaticNetwork> engines =
      is_static(form) ? std::make_unique<StaticNetwork>(module) : nullptr;
  for (const int64_t batch : {1, 7}) {
    const torch::Tensor x = made.input(batch);
    const std::string stem = name + "." + std::to_string(batch);
    write_npy(folder / (stem + ".x.npy"), x);
    const torch::Tensor y = module->forward_all({x}).at(0);
    if (form != "fp16") expect_read_back(folder / (name + ".onnx"), x, y);
    if (engines) {
      engines->write(folder / stem, x);
    } else {
      write_npy(folder / (stem + ".y.npy"), y);
    }
  }
  std::printf("%s\n", name.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) return std::fputs("onnx_networks FOLDER FORM [OPSET [NETWORK...]]\n", stderr), 2;
    const std::string form = argv[2];
    const std::vector<std::string> forms = {"float",          "fp16",     "int8",     "int7", "dynamic",
                                            "dynamic-tensor", "weights8", "weights4", "large"};
    if (std::ranges::find(forms, form) == forms.end())
      return std::fputs("onnx_networks: no such form\n", stderr), 2;
    const int64_t opset = argc > 3 ? std::atoi(argv[3]) : 21;
    std::vector<std::string> names(argv + std::min(argc, 4), argv + argc);
    if (names.empty()) {
      names = ulp::models::model_names();
      if (form != "float" && form != "fp16")
        std::erase_if(names, [](const auto& name) { return name.starts_with("bi"); });
      if (!is_static(form))
        for (const std::string& text : ulp::models::text_model_names()) names.push_back(text);
    }
    std::filesystem::create_directories(argv[1]);
    if (form == "large") return write_large(argv[1]), 0;
    for (const std::string& name : names) write_case(argv[1], name, form, opset);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "onnx_networks: %s\n", error.what());
    return 1;
  }
}
