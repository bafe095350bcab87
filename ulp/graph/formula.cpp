#include "ulp/graph/formula.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

namespace {

using V = Formula::V;

/// Sizes of what is computed from both.
Formula::Sizes broadcast(const Formula::Sizes& a, const Formula::Sizes& b) {
  Formula::Sizes made = a.size() < b.size() ? b : a;
  const Formula::Sizes& other = a.size() < b.size() ? a : b;
  const size_t lead = made.size() - other.size();
  for (size_t d = 0; d < other.size(); ++d) {
    if (made[lead + d] == fixed(1)) made[lead + d] = other[d];
  }
  return made;
}

size_t at_dim(int64_t dim, const Formula::Sizes& sizes) {
  return static_cast<size_t>(dim < 0 ? dim + std::ssize(sizes) : dim);
}

Argument sizes_argument(const Formula::Sizes& sizes) {
  std::vector<Argument> list;
  for (const SizeExpr& size : sizes)
    list.push_back(size.constant() ? Argument(c10::IValue(size.offset)) : Argument(size));
  return Argument::list(std::move(list));
}

const Argument& argument_in_eval(const Node& node, const char* argument) {
  const Argument& arg = node.arg(argument);
  return arg.kind == Argument::Kind::by_mode ? arg.items.at(0) : arg;
}

}  // namespace

SizeExpr fixed(int64_t size) {
  return {0, 1, size};
}

std::vector<SizeExpr> fixed(const std::vector<int64_t>& sizes) {
  std::vector<SizeExpr> all;
  for (const int64_t size : sizes) all.push_back(fixed(size));
  return all;
}

V Formula::operand(const char* argument) {
  Value* value = argument_in_eval(node_, argument).value;
  if (value == nullptr) throw CannotWrite{concatenate("expected '", argument, "' to be a tensor")};
  if (const at::Tensor stored = graph_.attribute_tensor(value); stored.defined())
    value->meta = TensorMeta{.dtype = stored.scalar_type(), .sizes = fixed(stored.sizes().vec())};
  if (!value->meta) throw CannotWrite{concatenate("the sizes of '", value->name, "' are not known")};
  return value;
}

int64_t Formula::integer(const char* argument) const {
  const std::optional<int64_t> found = graph::integer(argument_in_eval(node_, argument));
  if (!found) throw CannotWrite{concatenate("expected '", argument, "' to be a constant integer")};
  return *found;
}

double Formula::number(const char* argument) const {
  const std::optional<double> found = graph::number(argument_in_eval(node_, argument));
  if (!found) throw CannotWrite{concatenate("expected '", argument, "' to be a number")};
  return *found;
}

bool Formula::flag(const char* argument) const {
  const Argument& arg = argument_in_eval(node_, argument);
  if (arg.kind == Argument::Kind::training) return arg.inverted;
  if (arg.kind != Argument::Kind::literal || !arg.literal.isBool())
    throw CannotWrite{concatenate("expected '", argument, "' to be true or false")};
  return arg.literal.toBool();
}

std::vector<int64_t> Formula::integers(const char* argument) const {
  const auto found = graph::integers(argument_in_eval(node_, argument));
  if (!found) throw CannotWrite{concatenate("expected '", argument, "' to hold constant integers")};
  return *found;
}

int64_t Formula::dim(const char* argument, const V x) const {
  const int64_t given = integer(argument), rank = std::ssize(x->meta->sizes);
  const int64_t found = given < 0 ? given + rank : given;
  if (found < 0 || found >= rank)
    throw CannotWrite{concatenate("expected '", argument, "' to be one of ", rank, " dimensions")};
  return found;
}

int64_t Formula::size(const V x, int64_t dim) {
  const SizeExpr& size = x->meta->sizes.at(at_dim(dim, x->meta->sizes));
  if (!size.constant())
    throw CannotWrite{concatenate("expected dimension ", dim, " of '", x->name, "' not to be free")};
  return size.offset;
}

V Formula::call(const char* target, std::vector<Argument> args, at::ScalarType type, Sizes sizes) {
  Node* made = graph_.call(target, std::move(args), &node_, wish_);
  made->scope = node_.scope;
  made->output()->meta = TensorMeta{.dtype = type, .sizes = std::move(sizes)};
  return made->output();
}

V Formula::to(V a, at::ScalarType type) {
  if (a->meta->dtype == type) return a;
  return call("aten::to.dtype", {a, c10::IValue(static_cast<int64_t>(type))}, type, a->meta->sizes);
}

V Formula::with(const char* target, V a, double b) {
  // Beside a double, whole numbers would become floats.
  const bool whole = at::isIntegralType(a->meta->dtype, /*includeBool=*/false) && b == std::trunc(b) &&
                     std::abs(b) < 9e15 && std::string_view(target) != "aten::div.Scalar";
  const c10::IValue number = whole ? c10::IValue(static_cast<int64_t>(b)) : c10::IValue(b);
  return call(target, {a, number}, a->meta->dtype, a->meta->sizes);
}

V Formula::both(const char* target, V a, V b) {
  return call(target, {a, b}, a->meta->dtype, broadcast(a->meta->sizes, b->meta->sizes));
}

V Formula::compare(const std::string& op, V a, V b) {
  return call((op + ".Tensor").c_str(), {a, b}, at::kBool, broadcast(a->meta->sizes, b->meta->sizes));
}

V Formula::compare(const std::string& op, V a, double b) {
  return call((op + ".Scalar").c_str(), {a, c10::IValue(b)}, at::kBool, a->meta->sizes);
}

V Formula::where(V condition, V a, V b) {
  const Sizes sizes = broadcast(a->meta->sizes, b->meta->sizes);
  return call("aten::where.self", {condition, a, b}, a->meta->dtype,
              broadcast(condition->meta->sizes, sizes));
}

V Formula::where(V condition, double a, V b) {
  return call("aten::where.ScalarSelf", {condition, c10::IValue(a), b}, b->meta->dtype,
              broadcast(condition->meta->sizes, b->meta->sizes));
}

V Formula::where(V condition, V a, double b) {
  return call("aten::where.ScalarOther", {condition, a, c10::IValue(b)}, a->meta->dtype,
              broadcast(condition->meta->sizes, a->meta->sizes));
}

V Formula::reduce(const char* target, V x, const std::vector<int64_t>& dims) {
  Sizes sizes = x->meta->sizes;
  for (const int64_t dim : dims) sizes.at(at_dim(dim, sizes)) = fixed(1);
  return call(target, {x, c10::IValue(dims), c10::IValue(true)}, x->meta->dtype, sizes);
}

V Formula::view(V x, Sizes sizes) {
  return call("aten::reshape", {x, sizes_argument(sizes)}, x->meta->dtype, std::move(sizes));
}

V Formula::squeeze(V x, const std::vector<int64_t>& dims) {
  Sizes sizes;
  const auto rank = std::ssize(x->meta->sizes);
  for (int64_t d = 0; d < rank; ++d) {
    const auto goes = [&](int64_t dim) { return (dim < 0 ? dim + rank : dim) == d; };
    if (std::ranges::none_of(dims, goes)) sizes.push_back(x->meta->sizes[static_cast<size_t>(d)]);
  }
  return view(x, sizes);
}

V Formula::unsqueeze(V x, int64_t dim) {
  Sizes sizes = x->meta->sizes;
  sizes.insert(sizes.begin() + dim, fixed(1));
  return view(x, sizes);
}

V Formula::slice(V x, int64_t dim, int64_t start, int64_t size) {
  Sizes sizes = x->meta->sizes;
  sizes.at(static_cast<size_t>(dim)) = fixed(size);
  return call("aten::slice.Tensor",
              {x, c10::IValue(dim), c10::IValue(start), c10::IValue(start + size), c10::IValue(1)},
              x->meta->dtype, sizes);
}

V Formula::transpose(V x, int64_t a, int64_t b) {
  Sizes sizes = x->meta->sizes;
  std::swap(sizes.at(static_cast<size_t>(a)), sizes.at(static_cast<size_t>(b)));
  return call("aten::transpose.int", {x, c10::IValue(a), c10::IValue(b)}, x->meta->dtype, sizes);
}

V Formula::permute(V x, const std::vector<int64_t>& order) {
  if (std::ranges::is_sorted(order)) return x;
  Sizes sizes;
  for (const int64_t dim : order) sizes.push_back(x->meta->sizes.at(static_cast<size_t>(dim)));
  return call("aten::permute", {x, c10::IValue(order)}, x->meta->dtype, sizes);
}

V Formula::flip(V x, const std::vector<int64_t>& dims) {
  return call("aten::flip", {x, c10::IValue(dims)}, x->meta->dtype, x->meta->sizes);
}

V Formula::cat(const std::vector<V>& parts, int64_t dim) {
  if (parts.size() == 1) return parts[0];
  Sizes sizes = parts.at(0)->meta->sizes;
  int64_t all = 0;
  for (const V part : parts) all += size(part, dim);
  sizes.at(static_cast<size_t>(dim)) = fixed(all);
  return call("aten::cat", {Argument::list({parts.begin(), parts.end()}), c10::IValue(dim)},
              parts[0]->meta->dtype, sizes);
}

V Formula::expand(V x, const Sizes& sizes) {
  if (x->meta->sizes == sizes) return x;
  return call("aten::expand", {x, sizes_argument(sizes)}, x->meta->dtype, sizes);
}

V Formula::pick(V x, int64_t dim, const at::Tensor& places, const char* name) {
  Sizes sizes = x->meta->sizes;
  sizes.at(static_cast<size_t>(dim)) = fixed(places.numel());
  return call("aten::index_select", {x, c10::IValue(dim), constant(places, name)}, x->meta->dtype, sizes);
}

V Formula::constant(const at::Tensor& tensor, const char* name) {
  const std::string place = graph_.unique_name(node_.name() + "." + name);
  graph_.set_attribute(place, {Attribute::Kind::constant, tensor.contiguous()});
  V made = graph_.attribute(place);
  made->meta = TensorMeta{.dtype = tensor.scalar_type(), .sizes = fixed(tensor.sizes().vec())};
  return made;
}

V Formula::places(int64_t size, int64_t dim, int64_t rank, at::ScalarType type) {
  std::vector<int64_t> sizes(static_cast<size_t>(rank), 1);
  sizes.at(static_cast<size_t>(dim)) = size;
  return constant(torch::arange(size).to(type).reshape(sizes), "places");
}

void Formula::result(V made) {
  graph_.replace_uses(node_.output(), made);
  graph_.erase(&node_);
  done_ = true;
}

void Formula::result(size_t i, V made) {
  graph_.replace_uses(node_.output(i), made);
  done_ = true;
}

}  // namespace ulp::graph
