// A second reading of an archive of torch.export, which import_pt2 is compared with: the operators of its
// program are called one by one through LibTorch's dispatcher. Both run the same kernels on any processor.
#pragma once

#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "pt2_archive.h"

namespace ulp::test {

/// The kinds of nodes, arguments and tensors that the archives of tests/golden hold; any other throws.
class PlainProgram {
 public:
  explicit PlainProgram(const std::filesystem::path& path) : entries_(pt2_entries(path)) {
    program_ = Json::parse(entries_.at("models/model.json")).at("graph_module");
    for (const Json& spec : program_.at("signature").at("input_specs")) read_input(spec);
  }

  std::map<std::string, at::Tensor> parameters, buffers;

  /// Operators and functions of numbers.
  size_t calls() const { return program_.at("graph").at("nodes").size(); }

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs) const {
    Values values = tensors_;
    for (size_t i = 0; i < inputs.size(); ++i) values[inputs_.at(i)] = inputs[i];
    run(program_.at("graph"), values);
    std::vector<at::Tensor> results;
    for (const Json& output : program_.at("graph").at("outputs"))
      results.push_back(values.at(name_of(output)).toTensor());
    return results;
  }

 private:
  using Json = nlohmann::json;
  using IValue = c10::IValue;
  using Values = std::map<std::string, IValue>;

  /// A union is an object of one member, whose name is the kind.
  static std::string kind_of(const Json& one) { return one.begin().key(); }

  static std::string text(const Json& one) { return one.get<std::string>(); }

  /// Of a tensor: {"as_tensor": {"name": "x"}}.
  static std::string name_of(const Json& one) { return text(one.at("as_tensor").at("name")); }

  [[noreturn]] static void refuse(const std::string& what) {
    throw std::runtime_error("PlainProgram: got " + what);
  }

  void read_input(const Json& spec) {
    const std::string kind = kind_of(spec);
    const Json& input = *spec.begin();
    if (kind == "user_input") return inputs_.push_back(name_of(input.at("arg")));
    const std::string name = input.at(kind + "_name");
    at::Tensor tensor = stored(name);
    if (kind == "parameter") parameters[name] = tensor.requires_grad_();
    if (kind == "buffer") buffers[name] = tensor;
    tensors_[text(input.at("arg").at("name"))] = tensor;
  }

  at::Tensor stored(const std::string& name) const {
    for (const std::string folder : {"data/weights/", "data/constants/"}) {
      const char* config =
          folder == "data/weights/" ? "model_weights_config.json" : "model_constants_config.json";
      const Json tensors = Json::parse(entries_.at(folder + config)).at("config");
      if (!tensors.contains(name)) continue;
      const Json& meta = tensors.at(name).at("tensor_meta");
      std::vector<int64_t> sizes;
      for (const Json& size : meta.at("sizes")) sizes.push_back(size.at("as_int").get<int64_t>());
      constexpr int kInt64 = 5, kFloat32 = 7;
      const int type = meta.at("dtype");
      if (type != kInt64 && type != kFloat32) refuse("the type " + std::to_string(type));
      const at::Tensor tensor = at::empty(sizes, type == kInt64 ? at::kLong : at::kFloat);
      const std::string& bytes = entries_.at(folder + tensors.at(name).at("path_name").get<std::string>());
      if (bytes.size() != tensor.nbytes()) refuse("bytes of another size for " + name);
      std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
      return tensor;
    }
    refuse("no tensor " + name);
  }

  void run(const Json& graph, Values& values) const {
    for (const Json& node : graph.at("nodes")) {
      const std::string target = node.at("target");
      if (target == "_operator.mul") {
        keep(node, {argument(node, 0, values).toInt() * argument(node, 1, values).toInt()}, values);
      } else if (target == "torch.ops.higher_order.wrap_with_set_grad_enabled") {
        run_inside(node, values);
      } else {
        call(node, values);
      }
    }
  }

  /// A graph inside the graph, under a mode.
  void run_inside(const Json& node, Values& values) const {
    const at::AutoGradMode mode(argument(node, 0, values).toBool());
    const Json& graph = node.at("inputs").at(1).at("arg").at("as_graph").at("graph");
    Values inner;
    for (size_t i = 0; i < graph.at("inputs").size(); ++i)
      inner[name_of(graph.at("inputs").at(i))] = argument(node, i + 2, values);
    run(graph, inner);
    std::vector<IValue> results;
    for (const Json& output : graph.at("outputs")) results.push_back(inner.at(name_of(output)));
    keep(node, results, values);
  }

  /// "torch.ops.aten.add.Tensor" with what the node gives it, and the defaults of its schema.
  void call(const Json& node, Values& values) const {
    const std::string target = node.at("target"), start = "torch.ops.aten.";
    const size_t dot = target.rfind('.');
    if (!target.starts_with(start) || dot < start.size()) refuse("a call of " + target);
    const std::string name = "aten::" + target.substr(start.size(), dot - start.size());
    const std::string overload = target.substr(dot + 1);
    const c10::OperatorHandle handle = c10::Dispatcher::singleton().findSchemaOrThrow(
        name.c_str(), overload == "default" ? "" : overload.c_str());
    const Json& inputs = node.at("inputs");
    torch::jit::Stack stack;
    for (const c10::Argument& wanted : handle.schema().arguments()) {
      const auto given =
          std::ranges::find_if(inputs, [&](const Json& input) { return input.at("name") == wanted.name(); });
      IValue value =
          given == inputs.end() ? wanted.default_value().value() : value_of(given->at("arg"), values);
      const bool number = value.isInt() || value.isDouble() || value.isBool();
      if (number && wanted.type()->kind() == c10::TypeKind::TensorType)
        value = at::native::wrapped_scalar_tensor(value.toScalar());
      stack.push_back(value);
    }
    handle.callBoxed(stack);
    keep(node, stack, values);
  }

  static IValue argument(const Json& node, size_t i, const Values& values) {
    return value_of(node.at("inputs").at(i).at("arg"), values);
  }

  static IValue value_of(const Json& argument, const Values& values) {
    const std::string kind = kind_of(argument);
    const Json& value = *argument.begin();
    if (kind == "as_none") return {};
    if (kind == "as_tensor") return values.at(text(value.at("name")));
    if (kind == "as_name") return values.at(text(value));
    if (kind == "as_sym_int") return value_of(value, values);
    if (kind == "as_int") return value.get<int64_t>();
    if (kind == "as_float") return value.get<double>();
    if (kind == "as_bool") return value.get<bool>();
    if (kind == "as_device") return c10::Device(c10::kCPU);
    c10::List<int64_t> numbers;
    if (kind == "as_ints") {
      for (const Json& one : value) numbers.push_back(one.get<int64_t>());
    } else if (kind == "as_sym_ints") {
      for (const Json& one : value) numbers.push_back(value_of(one, values).toInt());
    } else {
      refuse("an argument that is " + kind);
    }
    return numbers;
  }

  static void keep(const Json& node, const std::vector<IValue>& results, Values& values) {
    const Json& outputs = node.at("outputs");
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Json& output = outputs.at(i);
      const std::string kind = kind_of(output);
      const Json& names = *output.begin();
      if (kind == "as_tensor") {
        values[text(names.at("name"))] = results.at(i);
      } else if (kind == "as_sym_int") {
        values[text(names.at("as_name"))] = results.at(i);
      } else if (kind == "as_tensors") {
        const std::vector<at::Tensor> tensors = results.at(i).toTensorVector();
        for (size_t k = 0; k < tensors.size(); ++k) values[text(names.at(k).at("name"))] = tensors[k];
      } else {
        refuse("a result that is " + kind);
      }
    }
  }

  std::map<std::string, std::string> entries_;
  Json program_;
  Values tensors_;
  std::vector<std::string> inputs_;
};

}  // namespace ulp::test
