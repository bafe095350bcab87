// Reads, runs and exports models, one for each line of JSON on standard input, and answers with a line of JSON:
//   {"model": FILE, "inputs": FILE, "outputs": FILE, "export": {"onnx": FILE, ...}, "values": [NAME, ...]}
// MODEL is an ONNX file or a .pt2 archive; `inputs` a safetensors file with a tensor for each input, by name, or by its place as "0".
// `values` are inputs whose numbers the import is given (OnnxImportOptions::values), none without it.
// `outputs` gets results by names: "graph.0" of the model as it was read, "pieces.0" of engines and LibTorch together, "qdq.0" and
// "tflite_int8.0" of the graph that was quantized for these exports, and "FORM.read.0" of an exported ONNX file that was read back.
// The answer has "failed": {STAGE: message} for what did not come about: "read", "run", "pieces", "FORM", "FORM.read".
// bench/peers/conformance.py draws the models and judges the results.
#include <torch/torch.h>

#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/import_pt2.h"
#include "ulp/io/safetensors.h"
#include "ulp/lower/partitioned_model.h"
#include "ulp/ulp.h"

namespace {

using nlohmann::json;
using Module = std::shared_ptr<ulp::graph::GraphModule>;
using Tensors = std::vector<torch::Tensor>;

/// What one line asks for, and what became of it.
class Conversion {
 public:
  explicit Conversion(const json& asked) : asked_(asked) {}

  json run() {
    attempt("read", [&] { model_ = read(asked_.at("model").get<std::string>(), values()); });
    if (model_) compute();
    if (!outputs_.empty()) ulp::io::save_tensors(asked_.at("outputs").get<std::string>(), outputs_);
    return answer_;
  }

 private:
  using Values = std::map<std::string, torch::Tensor>;

  static Module read(const std::string& path, const Values& values = {}) {
    // As the tool does.
    Module model = path.ends_with(".pt2")
                       ? ulp::exchange::import_pt2(path)
                       : ulp::exchange::import_onnx(path, {.free_batch = true, .values = values});
    model->eval();
    return model;
  }

  Values values() const {
    Values found;
    const json names = asked_.value("values", json::array());
    if (names.empty()) return found;
    const ulp::io::TensorFile file = ulp::io::load_tensors(asked_.at("inputs").get<std::string>());
    for (const json& name : names) {
      const torch::Tensor* value = file.find(name.get<std::string>());
      if (value != nullptr) found[name.get<std::string>()] = *value;
    }
    return found;
  }

  void attempt(const std::string& stage, const std::function<void()>& work) {
    try {
      work();
    } catch (const c10::Error& error) {
      answer_["failed"][stage] = "LibTorch: " + std::string(error.what_without_backtrace());
    } catch (const std::exception& error) {
      answer_["failed"][stage] = error.what();
    }
  }

  /// The file's tensors in the order of the graph's inputs.
  Tensors inputs() const {
    const ulp::io::TensorFile file = ulp::io::load_tensors(asked_.at("inputs").get<std::string>());
    Tensors tensors;
    for (const ulp::graph::Value* input : std::as_const(*model_).graph().inputs()) {
      const torch::Tensor* found = file.find(input->name);
      if (found == nullptr) found = file.find(std::to_string(tensors.size()));
      if (found == nullptr) ulp::fail("conformance", "expected an input '", input->name, "' in the file");
      // Numbers of 8 bits that the file's format has not come as floats.
      const auto type = input->meta ? input->meta->dtype : found->scalar_type();
      const bool small = c10::isFloat8Type(type) && found->scalar_type() != type;
      tensors.push_back(small ? found->to(type) : *found);
    }
    return tensors;
  }

  void keep(const std::string& name, const Tensors& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto type = tensors[i].scalar_type();
      const bool unknown = type == at::kFloat8_e4m3fnuz || type == at::kFloat8_e5m2fnuz;
      outputs_.emplace_back(name + "." + std::to_string(i),
                            (unknown ? tensors[i].to(at::kFloat) : tensors[i]).contiguous().clone());
    }
  }

  void compute() {
    Tensors given;
    attempt("run", [&] {
      given = inputs();
      keep("graph", model_->forward_all(given));
    });
    if (outputs_.empty()) return;
    attempt("pieces", [&] { keep("pieces", ulp::lower_partitioned(*model_).run(given)); });
    const json forms = asked_.value("export", json::object());
    for (const auto& [form, path] : forms.items())
      attempt(form, [&] { write(form, path.get<std::string>(), given); });
  }

  Module quantized(const std::string& form, const ulp::quant::Recipe& recipe, const Tensors& given) {
    const auto prepared = ulp::quant::prepare(model_, recipe);
    prepared->run(given);
    Module made = ulp::quant::convert(prepared);
    keep(form, made->forward_all(given));
    return made;
  }

  void write(const std::string& form, const std::string& path, const Tensors& given) {
    const int64_t batch = given.empty() || given[0].dim() == 0 ? 1 : given[0].size(0);
    if (form == "onnx") return write_onnx(form, *model_, path, {}, given);
    if (form == "onnx17") return write_onnx(form, *model_, path, {.opset = 17}, given);
    if (form == "fp16") return write_onnx(form, *model_, path, {.fp16 = true}, given);
    if (form == "qdq")
      return write_onnx(form, *quantized(form, ulp::quant::Recipe::onnx_qdq(), given), path, {}, given);
    if (form == "tflite") return ulp::exchange::export_tflite(*model_, path, {.batch = batch});
    if (form == "tflite_int8") {
      const Module int8 = quantized(form, ulp::quant::Recipe::tflite_int8(), given);
      return ulp::exchange::export_tflite(*int8, path, {.batch = batch});
    }
    if (form == "coreml") return ulp::exchange::export_coreml(*model_, path, {.batch = batch});
    ulp::fail("conformance", "expected a form of export, got '", form, "'");
  }

  void write_onnx(const std::string& form, const ulp::graph::GraphModule& model, const std::string& path,
                  const ulp::exchange::OnnxOptions& options, const Tensors& given) {
    ulp::exchange::export_onnx(model, path, options);
    attempt(form + ".read", [&] { keep(form + ".read", read(path)->forward_all(given)); });
  }

  const json& asked_;
  json answer_ = {{"failed", json::object()}};
  Module model_;
  ulp::io::NamedTensors outputs_;
};

}  // namespace

int main() {
  const torch::NoGradGuard no_grad;
  at::set_num_threads(1);  // the models are tiny
  for (std::string line; std::getline(std::cin, line);) {
    const json asked = json::parse(line);
    std::cout << Conversion(asked).run().dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
  }
}
