// What a node reads and gives.
#include <ATen/record_function.h>
#include <torch/types.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "ulp/exchange/onnx_import/run.h"

namespace ulp::exchange::onnx_import {

double decimal(float value) {
  if (!std::isfinite(value)) return value;
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text - 1, value).ptr;
  *end = '\0';
  return std::strtod(text, nullptr);
}

const std::string& Call::name(size_t i) const {
  if (!has(i)) refuse("expected an input ", i);
  return node_.inputs[i];
}

at::Tensor Call::x(size_t i) {
  const std::string& value = name(i);
  return as_ == As::calls ? run_.tensor(value, node_) : run_.slot(value, node_).value;
}

std::vector<int64_t> Call::sizes(size_t i) {
  const Slot& found = run_.slot(name(i), node_);
  return (found.value.defined() ? found.value : run_.store().find(name(i))).sizes().vec();
}

at::ScalarType Call::type(size_t i) {
  const Slot& found = run_.slot(name(i), node_);
  return (found.value.defined() ? found.value : run_.store().find(name(i))).scalar_type();
}

std::optional<at::Tensor> Call::optional(size_t i) {
  return has(i) ? std::optional(x(i)) : std::nullopt;
}

bool Call::is_known(size_t i) {
  return has(i) && run_.known(name(i), node_) != nullptr;
}

at::Tensor Call::known(size_t i) {
  const Slot* found = run_.known(name(i), node_);
  if (found == nullptr)
    refuse("expected input ", i, ", '", name(i),
           "', to follow from constants and sizes alone, got one that follows "
           "the numbers of the inputs");
  if (as_ == As::calls && found->sized) run_.store_.argued.insert(name(i));
  return found->value;
}

std::vector<int64_t> Call::ints(size_t i) {
  const at::Tensor found = known(i);
  if (found.dim() > 1 || !at::isIntegralType(found.scalar_type(), /*includeBool=*/false))
    refuse("expected a list of whole numbers as input ", i, ", '", name(i), "'");
  std::vector<int64_t> values;
  for (const at::Scalar& number : numbers(i)) values.push_back(number.toLong());
  return values;
}

int64_t Call::integer(size_t i) {
  const std::vector<int64_t> values = ints(i);
  if (values.size() != 1) refuse("expected one number as input ", i, ", got ", values.size());
  return values[0];
}

double Call::number(size_t i) {
  const std::optional<at::Scalar> found = scalar(i);
  if (!found) refuse("expected one number that is known as input ", i, ", '", name(i), "'");
  return found->toDouble();
}

std::vector<at::Scalar> Call::numbers(size_t i) {
  const at::DisableRecordFunctionGuard beside_the_capture;
  const at::Tensor found = known(i);
  const bool whole = !at::isFloatingType(found.scalar_type());
  const at::Tensor wide = found.to(whole ? at::kLong : at::kDouble).contiguous();
  std::vector<at::Scalar> values;
  for (int64_t k = 0; k < wide.numel(); ++k)
    values.push_back(whole ? at::Scalar(wide.const_data_ptr<int64_t>()[k])
                           : at::Scalar(wide.const_data_ptr<double>()[k]));
  return values;
}

std::optional<at::Scalar> Call::scalar(size_t i) {
  const Slot* found = has(i) ? run_.known(name(i), node_) : nullptr;
  if (found == nullptr || found->value.numel() != 1) return std::nullopt;
  const at::Tensor& value = found->value;
  const at::ScalarType type = value.scalar_type();
  if (!at::isFloatingType(type)) {
    if (!at::isIntegralType(type, /*includeBool=*/false)) return std::nullopt;
    return numbers(i).at(0);
  }
  if (found->sized) return std::nullopt;
  if (type == at::kFloat) return at::Scalar(decimal(*value.const_data_ptr<float>()));
  return numbers(i).at(0);
}

int64_t Call::attribute(std::string_view name, int64_t otherwise) const {
  const FileAttribute* found = node_.find(name);
  if (found == nullptr) return otherwise;
  if (found->type != 2) refuse("expected a whole number as attribute '", name, "'");
  return found->i;
}

double Call::attribute(std::string_view name, double otherwise) const {
  const FileAttribute* found = node_.find(name);
  if (found == nullptr) return otherwise;
  if (found->type != 1) refuse("expected a number as attribute '", name, "'");
  return decimal(found->f);
}

std::string Call::attribute(std::string_view name, const char* otherwise) const {
  const FileAttribute* found = node_.find(name);
  if (found == nullptr) return otherwise;
  if (found->type != 3) refuse("expected a word as attribute '", name, "'");
  return found->s;
}

std::vector<int64_t> Call::attribute(std::string_view name, const std::vector<int64_t>& otherwise) const {
  const FileAttribute* found = node_.find(name);
  if (found == nullptr) return otherwise;
  if (found->type != 7) refuse("expected whole numbers as attribute '", name, "'");
  return found->ints;
}

std::vector<float> Call::floats(std::string_view name) const {
  const FileAttribute* found = node_.find(name);
  if (found == nullptr || found->type != 6) refuse("expected numbers as attribute '", name, "'");
  return found->floats;
}

std::optional<std::vector<int64_t>> Call::list(std::string_view name, size_t i) {
  if (has(i)) return ints(i);
  if (!has_attribute(name)) return std::nullopt;
  return attribute(name, std::vector<int64_t>());
}

int64_t Call::dim(int64_t axis, int64_t rank) const {
  if (axis < -rank || axis >= rank) refuse("expected a dimension of ", rank, ", got ", axis);
  return axis < 0 ? axis + rank : axis;
}

void Call::set(at::Tensor result, size_t output) {
  if (output < results_.size()) results_[output] = std::move(result);
}

}  // namespace ulp::exchange::onnx_import
