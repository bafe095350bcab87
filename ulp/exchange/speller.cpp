#include "ulp/exchange/speller.h"

#include <algorithm>

#include "ulp/exchange/arguments.h"

namespace ulp::exchange {

using graph::Argument;
using graph::Value;

Value* Speller::call(const char* target, std::vector<Argument> args, at::ScalarType type, Sizes sizes) {
  graph::Node* made = graph_.call(target, std::move(args), &node_);
  made->scope = node_.scope;
  made->output()->meta = graph::TensorMeta{.dtype = type, .sizes = std::move(sizes)};
  return made->output();
}

Value* Speller::map(const char* target, std::vector<Argument> args) {
  const graph::TensorMeta meta = *args.at(0).value->meta;
  return call(target, std::move(args), meta.dtype, meta.sizes);
}

Value* Speller::to(Value* value, at::ScalarType type) {
  if (value->meta->dtype == type) return value;
  return call("aten::to.dtype", {value, c10::IValue(static_cast<int64_t>(type))}, type, value->meta->sizes);
}

Value* Speller::with(const char* target, Value* a, double b) {
  return map(target, {a, c10::IValue(b)});
}

Value* Speller::view(Value* value, const std::vector<int64_t>& sizes) {
  return call("aten::view", {value, c10::IValue(sizes)}, value->meta->dtype, fixed(sizes));
}

Value* Speller::tensor(const char* argument) {
  Value* value = node_.arg(argument).value;
  if (const at::Tensor stored = graph_.attribute_tensor(value); stored.defined())
    value->meta = graph::TensorMeta{.dtype = stored.scalar_type(), .sizes = fixed(stored.sizes().vec())};
  if (!value->meta) refuse(node_, "the sizes of '", value->name, "' are not known");
  return value;
}

int64_t Speller::integer(const char* argument) const {
  return int_arg(node_, argument);
}

Value* Speller::along(const char* argument, int64_t axis, const Value& x) {
  Value* value = to(tensor(argument), at::kFloat);
  const auto rank = static_cast<int64_t>(x.meta->sizes.size());
  const auto own = static_cast<int64_t>(value->meta->sizes.size());
  if (axis < 0) return own > std::min<int64_t>(rank, 1) ? view(value, {}) : value;
  std::vector<int64_t> sizes(static_cast<size_t>(rank), 1);
  sizes.at(static_cast<size_t>(axis)) = value->meta->sizes.at(0).offset;
  return rank == 1 ? value : view(value, sizes);
}

void Speller::replace(Value* value) {
  graph_.replace_uses(node_.output(), value);
  graph_.erase(&node_);
}

}  // namespace ulp::exchange
