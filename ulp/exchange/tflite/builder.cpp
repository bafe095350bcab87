#include "ulp/exchange/tflite/builder.h"

#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "ulp/base/error.h"
#include "ulp/graph/fusion/activation_of.h"
#include "ulp/graph/passes/pattern.h"
#include "ulp/quant/operators/ops.h"
#include "ulp/version.h"

namespace ulp::exchange::tflite {

using graph::Node;
using graph::Value;

namespace {

constexpr const char* kWhere = "exchange.export_tflite";
constexpr size_t kImage = 4;     // dimensions of what the file has as [N, H, W, C]
constexpr int64_t kMoved = 128;  // from codes in [0, 255] to the file's in [-128, 127]

/// [N, C, ...] as [N, ..., C], and back.
std::vector<int64_t> order_to(Layout layout, size_t rank) {
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (layout == Layout::channels_last) {
    std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  } else {
    std::rotate(order.begin() + 1, order.end() - 1, order.end());
  }
  return order;
}

at::Tensor dense(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).contiguous();
}

bool is_attribute(const Value& value) {
  return value.producer->kind() == Node::Kind::attribute;
}

}  // namespace

schema::TensorType type_of(const Node& node, at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return schema::TensorType::FLOAT32;
    case at::kByte:  // with values of 0 to 255
    case at::kInt:
      return schema::TensorType::INT32;
    case at::kLong:
      return schema::TensorType::INT64;
    case at::kBool:
      return schema::TensorType::BOOL;
    case at::kChar:
      return schema::TensorType::INT8;
    default:
      refuse(node, "expected numbers of float32, int8, uint8, int32, int64 or bool, got ",
             c10::toString(type));
  }
}

std::optional<schema::Activation> fused_activation(const Node& node) {
  const auto bounds = graph::clamp_bounds(node);
  if (!bounds) return std::nullopt;
  const auto is = [&](float low, float high) { return bounds->low == low && bounds->high == high; };
  if (is(0, std::numeric_limits<float>::infinity())) return schema::Activation::RELU;
  if (is(0, 6)) return schema::Activation::RELU6;
  if (is(-1, 1)) return schema::Activation::RELU_N1_TO_1;
  return std::nullopt;
}

Shape fixed_shape(const std::vector<int64_t>& sizes) {
  const std::vector<int32_t> narrow(sizes.begin(), sizes.end());
  return {narrow, narrow};
}

Builder::Builder(const graph::Graph& graph, std::vector<int64_t> sizes, bool free_batch, bool integer_io)
    : graph_(graph), sizes_(std::move(sizes)), free_batch_(free_batch), integer_io_(integer_io) {
  model_.buffers.push_back(std::make_unique<schema::BufferT>());  // stands for tensors without a content
}

Shape Builder::shape_of(const Node& reader, const Value& value, Layout layout) const {
  Shape shape;
  for (const graph::SizeExpr& size : sizes_of(reader, value)) {
    const int64_t number = size.at(sizes_);
    if (number > std::numeric_limits<int32_t>::max())
      refuse(reader, "expected sizes of 32 bits, got ", number);
    shape.sizes.push_back(static_cast<int32_t>(number));
    shape.signature.push_back(size.constant() ? static_cast<int32_t>(number) : -1);
  }
  if (layout == Layout::channels_last) {
    for (auto* one : {&shape.sizes, &shape.signature})
      std::rotate(one->begin() + 1, one->begin() + 2, one->end());
  }
  return shape;
}

// Values.

Layout Builder::layout_of(const Value* value) const {
  for (const auto* places : {&codes_, &numbers_}) {
    if (const auto found = places->find(value); found != places->end()) return found->second.made;
  }
  return Layout::as_is;
}

bool Builder::is_there(const Value* value, Layout layout) const {
  for (const auto* places : {&codes_, &numbers_}) {
    if (const auto found = places->find(value); found != places->end() && found->second.at.contains(layout))
      return true;
  }
  return false;
}

Index Builder::turned(const Node& reader, const Value& value, Index from, Layout to) {
  const std::vector<int64_t> order = order_to(to, sizes_of(reader, value).size());
  const Index made = like(from, shape_of(reader, value, to));
  Options options;
  options.Set(schema::TransposeOptionsT());
  emit(schema::Operation::TRANSPOSE, {from, ints(order)}, {made}, std::move(options));
  return made;
}

Index Builder::placed(const Node& reader, const Value* value, Place& place, Layout layout) {
  if (const auto found = place.at.find(layout); found != place.at.end()) return found->second;
  if (layout == Layout::flattened || place.made == Layout::flattened)
    refuse(reader, "expected '", value->name, "' to be read by linear layers alone");
  return place.at[layout] = turned(reader, *value, place.at.at(place.made), layout);
}

Index Builder::numbers(const Node& reader, const Value* value, Layout layout) {
  if (const auto found = numbers_.find(value); found != numbers_.end())
    return placed(reader, value, found->second, layout);
  if (at::Tensor tensor = stored(*value); tensor.defined()) {
    if (layout == Layout::channels_last)
      tensor = tensor.permute(order_to(layout, static_cast<size_t>(tensor.dim())));
    if (folded_.contains(value)) return constant(tensor, value->name);
    const Node& source = is_attribute(*value) ? *value->producer : *value->producer->args[0].value->producer;
    return constant(tensor, source.target());
  }
  if (!has_codes(value)) refuse(reader, "expected '", value->name, "' to be computed before it is read");
  const Index from = codes(reader, value, layout), made = make_numbers(reader, value, layout);
  emit(schema::Operation::DEQUANTIZE, {from}, {made});
  return made;
}

Index Builder::codes(const Node& reader, const Value* value, Layout layout) {
  return placed(reader, value, codes_.at(value), layout);
}

Index Builder::make_numbers(const Node& node, const Value* value, Layout layout) {
  const schema::TensorType type = tflite::type_of(node, exchange::type_of(*value));
  const Index made = add_tensor(value->name, type, shape_of(node, *value, layout));
  numbers_[value] = {{{layout, made}}, layout, {}};
  return made;
}

Index Builder::make_codes(const Node& node, const Value* value, Layout layout, const Steps& steps) {
  const Index made = add_tensor(value->name, schema::TensorType::INT8, shape_of(node, *value, layout));
  quantize_tensor(made, steps);
  codes_[value] = {{{layout, made}}, layout, steps};
  return made;
}

Index Builder::make_moved(const Node& node, const Value* value, Layout layout, const Value* like,
                          bool integer) {
  return integer ? make_codes(node, value, layout, steps_of(like)) : make_numbers(node, value, layout);
}

void Builder::share(const Value* value, const Value* from) {
  for (auto* places : {&codes_, &numbers_}) {
    if (const auto found = places->find(from); found != places->end()) (*places)[value] = found->second;
  }
  if (const auto found = flattened_.find(from); found != flattened_.end()) flattened_[value] = found->second;
}

void Builder::place(const Value* value, Index tensor, Layout layout, const Value* steps_like) {
  Place made{{{layout, tensor}}, layout, {}};
  if (steps_like != nullptr) made.steps = steps_of(steps_like);
  (steps_like != nullptr ? codes_ : numbers_)[value] = std::move(made);
}

// Stored tensors.

StoredCodes Builder::stored_codes(const Value& value) const {
  const Node& node = *value.producer;
  if (!node.is("ulp::dequantize") || !is_attribute(*node.args[0].value)) return {};
  const auto tensor = [&](const char* argument) {
    return graph_.attribute_tensor(value_arg(node, argument));
  };
  return {tensor("q").detach(), tensor("scale").detach(), tensor("zero_point").detach(),
          int_arg(node, "axis")};
}

at::Tensor Builder::stored(const Value& value) const {
  if (is_attribute(value)) return graph_.attribute_tensor(&value).detach();
  if (const auto found = folded_.find(&value); found != folded_.end()) return found->second;
  const StoredCodes codes = stored_codes(value);
  if (!codes.codes.defined()) return {};
  return quant::dequantize(codes.codes, codes.scale, codes.zero_point, codes.axis);
}

// Endings.

Steps Builder::steps_of(const Node& node, at::ScalarType codes, const char* scale,
                        const char* zero_point) const {
  const at::Tensor step = graph_.attribute_tensor(value_arg(node, scale));
  const at::Tensor zero = graph_.attribute_tensor(value_arg(node, zero_point));
  if (!step.defined() || step.numel() != 1 || !zero.defined())
    refuse(node, "expected one stored scale for an activation");
  const int64_t moved = codes == at::kByte ? kMoved : 0;
  return {{step.item<float>()}, {static_cast<int64_t>(zero.item<double>()) - moved}, 0};
}

Steps Builder::steps_of_quantize(const Node& node) const {
  const at::ScalarType codes = exchange::type_of(*node.output());
  const int64_t moved = codes == at::kByte ? kMoved : 0;
  if (int_arg(node, "axis") != -1) refuse(node, "expected one scale for an activation");
  if (int_arg(node, "qmin") - moved != -kMoved || int_arg(node, "qmax") - moved != kMoved - 1)
    refuse(node, "expected codes of 8 bits in their full range");
  return steps_of(node, codes, "scale", "zero_point");
}

Ending Builder::ending_of(const Node& node, bool may_be_integer) const {
  Ending ending{.result = node.output()};
  const Node* reader = graph::only_reader(graph_, ending.result);
  if (reader == nullptr) return ending;
  if (const auto fused = fused_activation(*reader)) {
    ending.fused = *fused;
    ending.result = reader->output();
    ending.covered.push_back(reader);
    reader = graph::only_reader(graph_, ending.result);
  }
  if (!may_be_integer || reader == nullptr || !reader->is("ulp::quantize")) return ending;
  ending.integer = true;
  ending.steps = steps_of_quantize(*reader);
  ending.result = reader->output();
  ending.covered.push_back(reader);
  return ending;
}

Index Builder::result(const Node& node, const Ending& ending, Layout layout) {
  done_.insert(ending.covered.begin(), ending.covered.end());
  return ending.integer ? make_codes(node, ending.result, layout, ending.steps)
                        : make_numbers(node, ending.result, layout);
}

// Operators and tensors.

void Builder::emit(schema::Operation op, Indices inputs, Indices outputs, Options options, int32_t version) {
  if (version == 0) {
    const auto is_int8 = [&](Index i) { return i >= 0 && type_of(i) == schema::TensorType::INT8; };
    const bool took_codes_at_once = op == schema::Operation::HARD_SWISH;  // LiteRT knows no second version
    version = !took_codes_at_once && std::ranges::any_of(inputs, is_int8) ? 2 : 1;
  }
  const auto [place, first] =
      operations_.try_emplace({op, version}, static_cast<uint32_t>(operations_.size()));
  if (first) {
    constexpr int32_t kPlaceholder = 127;  // where old readers look; larger numbers have no place there
    auto code = std::make_unique<schema::OperatorCodeT>();
    code->builtin_code = op;
    code->deprecated_builtin_code = static_cast<int8_t>(std::min(static_cast<int32_t>(op), kPlaceholder));
    code->version = version;
    model_.operator_codes.push_back(std::move(code));
  }
  auto made = std::make_unique<schema::OperatorT>();
  made->opcode_index = place->second;
  made->inputs = std::move(inputs);
  made->outputs = std::move(outputs);
  made->builtin_options = std::move(options);
  part_.operators.push_back(std::move(made));
}

std::string Builder::unique(const std::string& wish) {
  std::string name = wish;
  for (int i = 1; !taken_.insert(name).second; ++i) name = wish + "_" + std::to_string(i);
  return name;
}

void Builder::set_shape(schema::TensorT& tensor, const Shape& shape, bool free) {
  tensor.shape = shape.sizes;
  tensor.has_rank = true;
  if (free && shape.signature != shape.sizes) tensor.shape_signature = shape.signature;
}

Index Builder::add_tensor(const std::string& name, schema::TensorType type, const Shape& shape,
                          uint32_t buffer) {
  auto made = std::make_unique<schema::TensorT>();
  made->name = unique(name);
  made->type = type;
  made->buffer = buffer;
  set_shape(*made, shape, free_batch_);
  part_.tensors.push_back(std::move(made));
  return static_cast<Index>(part_.tensors.size()) - 1;
}

void Builder::quantize_tensor(Index tensor, const Steps& steps) {
  auto made = std::make_unique<schema::QuantizationParametersT>();
  made->scale = steps.scale;
  made->zero_point = steps.zero_point;
  made->quantized_dimension = steps.axis;
  part_.tensors.at(static_cast<size_t>(tensor))->quantization = std::move(made);
}

Index Builder::between(const Node& node, const Shape& shape, schema::TensorType type) {
  return add_tensor(node.name() + ".part", type, shape);
}

Index Builder::between(const Node& node, const Shape& shape, const Steps& steps) {
  const Index made = between(node, shape, schema::TensorType::INT8);
  quantize_tensor(made, steps);
  return made;
}

Index Builder::like(Index tensor, const Shape& shape) {
  const Index made = add_tensor(model_tensor(tensor).name, type_of(tensor), shape);
  if (const auto& steps = model_tensor(tensor).quantization)
    part_.tensors.back()->quantization = std::make_unique<schema::QuantizationParametersT>(*steps);
  return made;
}

uint32_t Builder::add_buffer(const at::Tensor& dense) {
  auto made = std::make_unique<schema::BufferT>();
  const auto* bytes = static_cast<const uint8_t*>(dense.const_data_ptr());
  made->data.assign(bytes, bytes + dense.nbytes());
  model_.buffers.push_back(std::move(made));
  return static_cast<uint32_t>(model_.buffers.size()) - 1;
}

Index Builder::constant(const at::Tensor& tensor, const std::string& name, const Steps* steps) {
  const bool bytes = steps == nullptr && tensor.scalar_type() == at::kByte;
  const at::Tensor flat = dense(bytes ? tensor.to(at::kInt) : tensor);
  std::string key = name + '\n' + c10::toString(flat.scalar_type());
  for (const int64_t size : flat.sizes()) key += "," + std::to_string(size);
  if (steps != nullptr) {
    key.append(":").append(reinterpret_cast<const char*>(steps->scale.data()),
                           steps->scale.size() * sizeof(float));
    for (const int64_t zero : steps->zero_point) key += "," + std::to_string(zero);
  }
  key.append(":").append(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
  if (const auto found = constants_.find(key); found != constants_.end()) return found->second;
  const Node& reader = *graph_.output_node();
  const Index made = add_tensor(name, tflite::type_of(reader, flat.scalar_type()),
                                fixed_shape(flat.sizes().vec()), add_buffer(flat));
  if (steps != nullptr) quantize_tensor(made, *steps);
  fixed_.insert(made);
  return constants_[key] = made;
}

Index Builder::constant(const at::Tensor& tensor) {
  return constant(tensor, "const");
}

Index Builder::ints(const std::vector<int64_t>& values) {
  return constant(torch::tensor(values, torch::kLong).to(at::kInt));
}

Index Builder::pairs(const std::vector<int64_t>& values) {
  return constant(torch::tensor(values, torch::kLong).to(at::kInt).reshape({-1, 2}));
}

Index Builder::lowest_like(Index tensor) {
  if (type_of(tensor) != schema::TensorType::INT8)
    return constant(torch::full({1}, std::numeric_limits<float>::lowest(), torch::kFloat));
  const auto& steps = *model_tensor(tensor).quantization;
  const Steps same{steps.scale, steps.zero_point, 0};
  return constant(torch::full({1}, -kMoved, torch::kChar), "lowest", &same);
}

Index Builder::scalar(double value) {
  return constant(torch::full({}, value, torch::kFloat));
}

Index Builder::cast(const Node& node, Index tensor, at::ScalarType type) {
  const schema::TensorType to = tflite::type_of(node, type);
  if (type_of(tensor) == to) return tensor;
  const Index made = between(node, shape_of_tensor(tensor), to);
  emit_cast(tensor, made);
  return made;
}

void Builder::emit_cast(Index from, Index to) {
  schema::CastOptionsT types;
  types.in_data_type = type_of(from);
  types.out_data_type = type_of(to);
  Options options;
  options.Set(std::move(types));
  emit(schema::Operation::CAST, {from}, {to}, std::move(options));
}

Index Builder::number(const Node& node, const c10::Scalar& value, at::ScalarType type) {
  tflite::type_of(node, type);
  return constant(torch::full({}, value, torch::dtype(type)));
}

Shape Builder::shape_of_tensor(Index tensor) const {
  const schema::TensorT& one = model_tensor(tensor);
  return {one.shape, one.shape_signature.empty() ? one.shape : one.shape_signature};
}

void Builder::reshape(const Node& node, Index from, Index to) {
  const schema::TensorT& target = model_tensor(to);
  const std::vector<int32_t>& free = target.shape_signature.empty() ? target.shape : target.shape_signature;
  if (std::ranges::count(free, -1) > 1) refuse(node, "expected a batch that is a number for this shape");
  schema::ReshapeOptionsT shape;
  shape.new_shape = free;
  Options options;
  options.Set(std::move(shape));
  emit(schema::Operation::RESHAPE, {from, ints({free.begin(), free.end()})}, {to}, std::move(options), 1);
}

// Inputs, results, the file.

void Builder::add_input(const Node& node, const Value& value) {
  const Layout layout = sizes_of(node, value).size() == kImage ? Layout::channels_last : Layout::as_is;
  const Node* reader = graph::only_reader(graph_, &value);
  const bool integer = integer_io_ && reader != nullptr && reader->is("ulp::quantize");
  const Index made = integer ? make_codes(node, &value, layout, steps_of_quantize(*reader))
                             : make_numbers(node, &value, layout);
  const bool bytes = exchange::type_of(value) == at::kByte;
  part_.inputs.push_back(bytes ? bytes_before(made) : made);
  fixed_.insert(made);
}

Index Builder::bytes_before(Index tensor) {
  const Index made = add_tensor("held", schema::TensorType::UINT8, shape_of_tensor(tensor));
  std::swap(part_.tensors.at(static_cast<size_t>(made))->name,
            part_.tensors.at(static_cast<size_t>(tensor))->name);
  emit_cast(made, tensor);
  fixed_.insert(made);
  return made;
}

void Builder::add_output(const Node& node, const Value& value, const std::string& name) {
  const bool integer = integer_io_ && has_codes(&value);
  const Layout layout = sizes_of(node, value).size() == kImage ? layout_of(&value) : Layout::as_is;
  Index made = tensor_of(node, &value, layout, integer);
  if (fixed_.contains(made)) {
    const Shape shape = shape_of(node, value, layout);
    const Index copy = like(made, shape);
    reshape(node, made, copy);
    made = copy;
  }
  if (exchange::type_of(value) == at::kByte) {
    const Index bytes = add_tensor(value.name, schema::TensorType::UINT8, shape_of_tensor(made));
    emit_cast(made, bytes);
    made = bytes;
  }
  if (!name.empty()) part_.tensors.at(static_cast<size_t>(made))->name = unique(name);
  part_.outputs.push_back(made);
  fixed_.insert(made);
}

std::string Builder::bytes() {
  const auto named = [&](const std::vector<Index>& list) {
    std::vector<std::unique_ptr<schema::TensorMapT>> made;
    for (const Index i : list) {
      auto one = std::make_unique<schema::TensorMapT>();
      one->name = model_tensor(i).name;
      one->tensor_index = static_cast<uint32_t>(i);
      made.push_back(std::move(one));
    }
    return made;
  };
  auto signature = std::make_unique<schema::SignatureDefT>();
  signature->signature_key = "serving_default";
  signature->inputs = named(part_.inputs);
  signature->outputs = named(part_.outputs);
  model_.signature_defs.push_back(std::move(signature));
  part_.name = "main";
  constexpr uint32_t kVersionOfFormat = 3;
  model_.version = kVersionOfFormat;
  model_.description = std::string("ulp ") + kVersion;
  constexpr uint64_t kLargest = 2000000000;
  uint64_t stored = 0;
  for (const auto& buffer : model_.buffers) stored += buffer->data.size();
  if (stored > kLargest)
    fail(kWhere, "expected a model below 2 GB, the limit of a TensorFlow Lite file, got ", stored, " bytes");
  model_.subgraphs.push_back(std::make_unique<schema::SubGraphT>(std::move(part_)));
  flatbuffers::FlatBufferBuilder out;
  schema::FinishModelBuffer(out, schema::CreateModel(out, &model_));
  return {reinterpret_cast<const char*>(out.GetBufferPointer()), out.GetSize()};
}

}  // namespace ulp::exchange::tflite
