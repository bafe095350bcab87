#include "ulp/exchange/coreml/builder.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include "ulp/base/error.h"
#include "ulp/quant/operators/ops.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::exchange::coreml {

using graph::Value;

namespace {

/// Core ML's tensors have no more dimensions.
constexpr size_t kMostDims = 5;

/// A name that the format allows: letters, digits and _, no digit first, no word of its own text form.
std::string sanitized(std::string name) {
  static const std::set<std::string> kWords = {"any",   "bool",  "program", "func",   "tensor", "list",
                                               "dict",  "tuple", "true",    "false",  "string", "bf16",
                                               "fp16",  "fp32",  "fp64",    "int8",   "int16",  "int32",
                                               "int64", "uint8", "uint16",  "uint32", "uint64", "state"};
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  const bool digit = name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0;
  return digit || kWords.contains(name) ? "_" + name : name;
}

/// Integers of less than 32 bits are held in int32, too.
bool is_held_in_int32(at::ScalarType type) {
  return at::isIntegralType(type, /*includeBool=*/false);
}

at::ScalarType stored_type(at::ScalarType type) {
  return is_held_in_int32(type) ? at::kInt : type;
}

/// int64 as int32.
at::Tensor narrowed(const at::Tensor& tensor, const std::string& name) {
  if (tensor.scalar_type() != at::kLong) return tensor;
  using Limits = std::numeric_limits<int32_t>;
  if (tensor.numel() > 0 &&
      (tensor.max().item<int64_t>() > Limits::max() || tensor.min().item<int64_t>() < Limits::min()))
    fail(kExportCoremlWhere, "expected integers of 32 bits, got ", tensor.abs().max().item<int64_t>(),
         " in '", name, "'");
  return tensor.to(at::kInt);
}

/// What the operation `cast` calls a type.
const char* dtype_word(at::ScalarType type) {
  switch (stored_type(type)) {
    case at::kFloat:
      return "fp32";
    case at::kHalf:
      return "fp16";
    case at::kInt:
      return "int32";
    case at::kBool:
      return "bool";
    default:
      fail(kExportCoremlWhere, "expected values of f32, f16, integers or bools, got ", c10::toString(type));
  }
}

Type type_of_value(const graph::Node& node, const Value& value) {
  const Type type{stored_type(type_of(value)), shape_of(node, value)};
  if (type.shape.size() > kMostDims)
    refuse(node, "expected values of at most ", kMostDims, " dimensions, got ", type.shape.size());
  return type;
}

}  // namespace

std::vector<int64_t> shape_of(const graph::Node& node, const Value& value) {
  std::vector<int64_t> shape;
  for (int64_t d = 0; d < rank_of(node, value); ++d) shape.push_back(fixed_size(node, value, d));
  return shape;
}

std::vector<int64_t> shape_of(const graph::Node& node) {
  return shape_of(node, *node.output());
}

Builder::Builder(const graph::Graph& graph, bool codes) : graph_(graph), codes_(codes) {}

std::string Builder::unique(const std::string& wish) {
  const std::string base = sanitized(wish);
  std::string name = base;
  for (int i = 1; !taken_.insert(name).second; ++i) name = base + "_" + std::to_string(i);
  return name;
}

const std::string& Builder::name_of(const Value* value) {
  const auto found = names_.find(value);
  if (found != names_.end()) return found->second;
  const graph::Node& producer = *value->producer;
  if (producer.kind() == graph::Node::Kind::attribute) {
    const at::Tensor held = graph_.attribute_tensor(value);
    const bool narrow = is_held_in_int32(held.scalar_type()) && held.scalar_type() != at::kLong;
    return names_[value] = constant(narrow ? held.to(at::kInt) : held, producer.target());
  }
  return names_[value] = unique(value->name);
}

const std::string& Builder::in(const graph::Node& node, std::string_view argument) {
  return name_of(value_arg(node, argument));
}

std::string Builder::weight(const graph::Node& node, std::string_view argument) {
  const Value* value = value_arg(node, argument);
  const at::Tensor stored = graph_.attribute_tensor(value);
  if (!codes_ || !stored.defined() || !stored.is_floating_point()) return name_of(value);
  const auto [place, first] = weights_.try_emplace(value);
  if (!first) return place->second;
  const torch::NoGradGuard no_grad;
  const at::Tensor numbers = stored.detach().to(at::kFloat);
  if (!at::isfinite(numbers).all().item<bool>())
    refuse(node, "expected finite weights in '", value->producer->target(), "'");
  const quant::QParams params = quant::qparams_of(numbers, quant::WeightOnlyRecipe{}.scheme());
  return place->second = dequantized(quant::quantize(numbers, params), params.scale.to(stored.scalar_type()),
                                     value->producer->target());
}

std::string Builder::call(const graph::Node& node, const char* op, Inputs inputs, Type type) {
  const std::string name = unique(node.name() + "_" + op);
  type.dtype = stored_type(type.dtype);
  if (type.shape.size() > kMostDims)
    refuse(node, "expected values of at most ", kMostDims, " dimensions, got ", type.shape.size());
  model_.operations.push_back({op, name, std::move(inputs), {}, {{name, std::move(type)}}});
  return name;
}

std::string Builder::call(const graph::Node& node, const char* op, Inputs inputs) {
  return call(node, op, std::move(inputs), type_of_value(node, *node.output()));
}

void Builder::result(const graph::Node& node, const char* op, Inputs inputs, size_t i) {
  const Value* value = node.output(i);
  const std::string& name = name_of(value);
  model_.operations.push_back({op, name, std::move(inputs), {}, {{name, type_of_value(node, *value)}}});
}

void Builder::results(const graph::Node& node, const char* op, Inputs inputs) {
  std::vector<Named> outputs;
  for (const auto& output : node.outputs())
    outputs.push_back({name_of(output.get()), type_of_value(node, *output)});
  model_.operations.push_back({op, outputs.at(0).name, std::move(inputs), {}, outputs});
}

std::string Builder::store(const std::string& key, const std::string& wish, Constant constant) {
  const std::string name = unique(wish);
  const Type type = constant.type;
  model_.operations.push_back({"const", name, {}, {{"val", std::move(constant)}}, {{name, type}}});
  return constants_[key] = name;
}

Constant Builder::typed(const at::Tensor& tensor, const std::string& wish) {
  constexpr int64_t kInModel = 10;  // as many numbers coremltools keeps out of the file of weights
  const at::Tensor data = narrowed(tensor.detach().to(at::kCPU).contiguous(), wish);
  Constant made{.type = {data.scalar_type(), data.sizes().vec()}, .data = data, .word = {}};
  if (data.numel() >= kInModel && Blobs::holds(data.scalar_type())) made.blob = model_.blobs.add(data);
  return made;
}

std::string Builder::constant(const at::Tensor& tensor, const std::string& wish) {
  constexpr int64_t kCompared = 1024;  // larger ones are equal where they are the same memory
  const at::Tensor dense = tensor.detach().to(at::kCPU).contiguous();
  std::string key = c10::toString(dense.scalar_type());
  for (const int64_t size : dense.sizes()) key += "," + std::to_string(size);
  if (dense.numel() > kCompared) {
    key += "@" + std::to_string(reinterpret_cast<uintptr_t>(dense.const_data_ptr()));
    kept_.push_back(dense);
  } else {
    key.append(":" + wish + ":").append(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  }
  const auto found = constants_.find(key);
  return found != constants_.end() ? found->second : store(key, wish, typed(dense, wish));
}

std::string Builder::number(double value, at::ScalarType type) {
  constexpr double kLargestHalf = 65504;
  if (type == at::kHalf) value = std::clamp(value, -kLargestHalf, kLargestHalf);
  return constant(torch::full({}, value, torch::dtype(stored_type(type))), "number");
}

std::string Builder::integer(int64_t value) {
  return constant(torch::full({}, value, torch::kInt), "integer");
}

std::string Builder::ints(const std::vector<int64_t>& values) {
  return constant(torch::tensor(values, torch::kLong).to(torch::kInt), "integers");
}

std::string Builder::flag(bool value) {
  return constant(torch::full({}, value, torch::kBool), "flag");
}

std::string Builder::flags(const std::vector<bool>& values) {
  const at::Tensor tensor = torch::zeros({std::ssize(values)}, torch::kBool);
  for (size_t i = 0; i < values.size(); ++i) tensor.data_ptr<bool>()[i] = values[i];
  return constant(tensor, "flags");
}

std::string Builder::word(const std::string& value) {
  const std::string key = "word:" + value;
  const auto found = constants_.find(key);
  if (found != constants_.end()) return found->second;
  return store(key, "word_" + value, {.type = {.word = true}, .data = {}, .word = value});
}

std::string Builder::dequantized(const at::Tensor& codes, const at::Tensor& scale, const std::string& wish) {
  const std::string name = unique(wish);
  const Type type{scale.scalar_type(), codes.sizes().vec()};
  model_.operations.push_back({"constexpr_affine_dequantize",
                               name,
                               {},
                               {{"quantized_data", typed(codes, wish)},
                                {"scale", typed(scale.reshape({-1}), wish)},
                                {"zero_point", typed(torch::zeros({}, torch::kChar), wish)},
                                {"axis", typed(torch::zeros({}, torch::kInt), wish)}},
                               {{name, type}}});
  return name;
}

std::string Builder::cast(const graph::Node& node, const std::string& x, at::ScalarType type,
                          const std::vector<int64_t>& shape) {
  return call(node, "cast", {{"x", x}, {"dtype", word(dtype_word(type))}}, {type, shape});
}

void Builder::add_input(const Value& value) {
  const at::ScalarType type = type_of(value);
  if (type != at::kFloat && type != at::kHalf && type != at::kBool && !is_held_in_int32(type))
    fail(kExportCoremlWhere, "expected inputs of f32, f16, integers or bool, got ", c10::toString(type),
         " for '", value.name, "'");
  const graph::Node& node = *value.producer;
  const Type made = type_of_value(node, value);
  if (made.shape.empty())
    fail(kExportCoremlWhere, "expected inputs of one dimension or more, got none for '", value.name, "'");
  const std::string name = unique(value.name);
  model_.inputs.push_back({name, {stored_type(type == at::kBool ? at::kInt : type), made.shape}});
  results_.insert(name);
  names_[&value] = type == at::kBool ? cast(node, name, at::kBool, made.shape) : name;
}

void Builder::add_output(const Value& value, const std::string& name) {
  const graph::Node& node = *graph_.output_node();
  const Type type = type_of_value(node, value);
  const std::string made = name_of(&value);
  if (type.shape.empty())
    refuse(node, "expected results of one dimension or more, got none for '", made, "'");
  const bool is_bool = type.dtype == at::kBool;
  const bool stored = value.producer->kind() == graph::Node::Kind::attribute;
  std::string shown = made;
  if (!name.empty() || is_bool || stored || results_.contains(made))
    shown = unique(name.empty() ? "result" : name);
  const Type shown_type{is_bool ? at::kInt : type.dtype, type.shape};
  if (shown != made) {
    Inputs inputs = {{"x", made}};
    if (is_bool) inputs.emplace_back("dtype", word("int32"));
    model_.operations.push_back({is_bool ? "cast" : "identity", shown, inputs, {}, {{shown, shown_type}}});
  }
  model_.outputs.push_back({shown, shown_type});
  results_.insert(shown);
}

}  // namespace ulp::exchange::coreml
