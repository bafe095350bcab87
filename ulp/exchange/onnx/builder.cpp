#include "ulp/exchange/onnx/builder.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/exchange/indices_from_end.h"
#include "ulp/exchange/stored_in_out.h"

namespace ulp::exchange::onnx {

using graph::SizeExpr;
using graph::Value;

namespace {

constexpr int64_t kIrOfOpset21 = 10, kIrOfOpset19 = 9, kIrOfOpset17 = 8;

/// All of a size as one polynomial of the batch and the free dimensions.
Polynomial polynomial_of(const SizeExpr& size) {
  Polynomial sum;
  if (size.offset != 0) sum.terms.push_back({size.offset, 1, {}});
  if (size.numerator != 0) sum.terms.push_back({size.numerator, size.denominator, {1}});
  sum.terms.insert(sum.terms.end(), size.rest.terms.begin(), size.rest.terms.end());
  return sum;
}

}  // namespace

Builder::Builder(const graph::Graph& graph, int64_t opset) : graph_(graph), free_names_{"batch"} {
  model_.opset = opset;
  model_.ir_version = opset >= 21 ? kIrOfOpset21 : opset >= 19 ? kIrOfOpset19 : kIrOfOpset17;
  for (const graph::DynamicDimension& free : graph.free) free_names_.push_back(free.name);
  for (const auto& node : graph.nodes()) {
    for (const auto& value : node->outputs()) taken_.insert(value->name);
  }
  for (const auto& [name, attribute] : graph.attributes()) taken_.insert(name);
}

std::string Builder::unique(const std::string& wish) {
  std::string name = wish;
  for (int i = 1; !taken_.insert(name).second; ++i) name = wish + "_" + std::to_string(i);
  return name;
}

const std::string& Builder::name_of(const Value* value) {
  const auto found = names_.find(value);
  if (found != names_.end()) return found->second;
  const graph::Node& producer = *value->producer;
  if (producer.kind() == graph::Node::Kind::attribute) {
    return names_[value] = derived(producer.target(), "", [&] { return graph_.attribute_tensor(value); });
  }
  return names_[value] = value->name;
}

const std::string& Builder::name_in_out(const Value& weight) {
  const std::string& name = name_of(&weight);
  if (in_out_.insert(name).second) model_.metadata[kStoredInOut] += name + '\n';
  return name;
}

void Builder::counts_from_end(const Value& selection) {
  model_.metadata[kIndicesFromEnd] += name_of(&selection) + '\n';
}

std::string Builder::store(const std::string& wish, const at::Tensor& tensor) {
  const int32_t type = data_type(tensor.scalar_type(), wish);
  const bool free = graph_.find_attribute(wish) != nullptr && !stored_.contains(wish);
  const std::string name = free ? wish : unique(wish);
  stored_.insert(name);
  model_.initializers.push_back({name, type, tensor.sizes().vec(), tensor.detach()});
  return name;
}

std::string Builder::store(const std::string& wish, const Codes& codes) {
  const std::string name = store(wish, codes.bytes);
  model_.initializers.back().type = codes.type;
  model_.initializers.back().dims = codes.dims;
  return name;
}

const std::string& Builder::in(const graph::Node& node, std::string_view argument) {
  return name_of(value_arg(node, argument));
}

std::string Builder::name_as(const graph::Node& node, const Value& value, at::ScalarType type) {
  const std::string& name = name_of(&value);
  return type_of(value) == type ? name : cast(node, name, type);
}

Names Builder::calls(const graph::Node& node, const std::string& op, size_t count, Names inputs,
                     Attributes attributes) {
  Names outputs;
  for (size_t i = 0; i < count; ++i) outputs.push_back(unique(node.name() + "." + op));
  model_.calls.push_back({op, outputs[0], std::move(inputs), outputs, std::move(attributes)});
  return outputs;
}

std::string Builder::call(const graph::Node& node, const std::string& op, Names inputs,
                          Attributes attributes) {
  return calls(node, op, 1, std::move(inputs), std::move(attributes))[0];
}

void Builder::result(const graph::Node& node, const std::string& op, Names inputs, Attributes attributes,
                     size_t i) {
  const std::string& name = name_of(node.output(i));
  model_.calls.push_back({op, name, std::move(inputs), {name}, std::move(attributes)});
}

void Builder::results(const graph::Node& node, const std::string& op, Names inputs, Attributes attributes) {
  Names outputs;
  for (const auto& output : node.outputs()) outputs.push_back(name_of(output.get()));
  model_.calls.push_back({op, node.name(), std::move(inputs), outputs, std::move(attributes)});
}

std::string Builder::constant(const at::Tensor& tensor, const std::string& wish) {
  const at::Tensor flat = dense(tensor);
  std::string key = std::string(c10::toString(flat.scalar_type())) + wish;
  for (const int64_t size : flat.sizes()) key += "," + std::to_string(size);
  key.append(":").append(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
  const auto found = constants_.find(key);
  if (found != constants_.end()) return found->second;
  return constants_[key] = store(wish, flat);
}

std::string Builder::scalar(const c10::Scalar& value, at::ScalarType type) {
  constexpr double kLargestHalf = 65504;
  const bool clamped = type == at::kHalf && std::isfinite(value.toDouble());
  const c10::Scalar stored = clamped ? std::clamp(value.toDouble(), -kLargestHalf, kLargestHalf) : value;
  // Beside whole numbers of fewer bits LibTorch takes the low bits of a number.
  if (stored.isIntegral(/*includeBool=*/false) && at::isIntegralType(type, /*includeBool=*/false))
    return constant(torch::full({}, stored, torch::kLong).to(type));
  return constant(torch::full({}, stored, torch::dtype(type)));
}

std::string Builder::ints(const std::vector<int64_t>& values) {
  return constant(torch::tensor(values, torch::kLong));
}

std::string Builder::free_size(const graph::Node& node, size_t i) {
  const auto found = free_sizes_.find(i);
  if (found != free_sizes_.end()) return found->second;
  graph::DynamicDimension::InputDimension place;
  if (i > 0) {
    const graph::DynamicDimension& free = graph_.free.at(i - 1);
    if (free.places.empty())
      refuse(node, "expected a size that can be computed of those of the inputs, got '", free.name, "'");
    place = free.places[0];
  } else {
    const auto& dims = graph_.batch_dims;
    const auto first = std::ranges::find_if(dims, [](int64_t dim) { return dim >= 0; });
    if (first == dims.end()) refuse(node, "expected an input with a batch");
    place = {static_cast<size_t>(first - dims.begin()), *first};
  }
  const std::string& input = name_of(graph_.inputs().at(place.input));
  const std::string shape = call(node, "Shape", {input});
  return free_sizes_[i] = call(node, "Gather", {shape, ints({place.dim})}, {{"axis", int64_t{0}}});
}

std::string Builder::size(const graph::Node& node, const SizeExpr& expr) {
  std::string sum;
  for (const Polynomial::Term& term : polynomial_of(expr).terms) {
    std::string product = ints({term.numerator});
    bool plain = term.numerator == 1;
    for (size_t i = 0; i < term.powers.size(); ++i) {
      for (int32_t power = 0; power < term.powers[i]; ++power) {
        const std::string factor = free_size(node, i);
        product = plain ? factor : call(node, "Mul", {product, factor});
        plain = false;
      }
    }
    // Each quotient of the reference networks is whole by itself; a sum of fractions is not.
    if (term.denominator != 1) {
      if (polynomial_of(expr).terms.size() > 1 && !expr.rest.terms.empty())
        refuse(node, "expected a size without fractions of several free dimensions");
      product = call(node, "Div", {product, ints({term.denominator})});
    }
    sum = sum.empty() ? product : call(node, "Add", {sum, product});
  }
  return sum.empty() ? ints({0}) : sum;
}

std::string Builder::sizes(const graph::Node& node, const std::vector<SizeExpr>& sizes) {
  std::vector<int64_t> numbers;
  for (const SizeExpr& one : sizes) numbers.push_back(one.offset);
  if (std::ranges::all_of(sizes, &SizeExpr::constant)) return ints(numbers);
  Names parts;
  for (const SizeExpr& one : sizes) parts.push_back(size(node, one));
  return parts.size() == 1 ? parts[0] : call(node, "Concat", parts, {{"axis", int64_t{0}}});
}

std::string Builder::cast(const graph::Node& node, const std::string& x, at::ScalarType type) {
  return call(node, "Cast", {x}, {{"to", int64_t{data_type(type, x)}}});
}

ValueInfo Builder::info(const Value& value, const std::string& name) const {
  ValueInfo made{.name = name, .type = data_type(type_of(value), name), .has_shape = value.meta.has_value()};
  if (!value.meta) return made;
  for (const SizeExpr& size : value.meta->sizes) {
    if (size.constant()) {
      made.shape.emplace_back(size.offset);
    } else {
      made.shape.emplace_back(to_text(polynomial_of(size), free_names_));
    }
  }
  return made;
}

void Builder::add_input(const Value& value) {
  model_.inputs.push_back(info(value, name_of(&value)));
  results_.insert(name_of(&value));
}

void Builder::add_output(const Value& value, const std::string& name) {
  const std::string made = name_of(&value);
  const bool as_made = (name.empty() || name == made) && !stored_.contains(made) && !results_.contains(made);
  const std::string shown = as_made ? made : unique(name.empty() ? "result" : name);
  if (shown != made) model_.calls.push_back({"Identity", shown, {made}, {shown}, {}});
  model_.outputs.push_back(info(value, shown));
  results_.insert(shown);
}

at::Tensor stored_argument(const Builder& builder, const graph::Node& node, const char* argument) {
  const at::Tensor tensor = builder.graph().attribute_tensor(value_arg(node, argument));
  if (!tensor.defined()) refuse(node, "expected '", argument, "' to be a tensor that is stored");
  return tensor.detach();
}

}  // namespace ulp::exchange::onnx
