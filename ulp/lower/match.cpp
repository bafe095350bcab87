#include "ulp/lower/match.h"

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <sstream>

namespace ulp::lowering {

using graph::Argument;
using graph::Node;
using graph::Value;

bool has_arg(const Node& node, std::string_view name) {
  return node.kind() == Node::Kind::call &&
         std::ranges::any_of(node.schema().arguments(), [&](const auto& arg) { return arg.name() == name; });
}

namespace {

const c10::IValue& literal(const Node& node, std::string_view name) {
  const Argument& arg = node.arg(name);
  if (arg.kind != Argument::Kind::literal) unsupported(node, "expected '", name, "' to be a constant");
  return arg.literal;
}

std::optional<int64_t> constant_int(const Argument& arg) {
  if (arg.kind == Argument::Kind::literal && arg.literal.isInt()) return arg.literal.toInt();
  if (arg.kind == Argument::Kind::batch && arg.batch.constant()) return arg.batch.offset;
  return std::nullopt;
}

}  // namespace

int64_t int_arg(const Node& node, std::string_view name) {
  const std::optional<int64_t> value = constant_int(node.arg(name));
  if (!value) unsupported(node, "expected '", name, "' to be a constant integer");
  return *value;
}

bool bool_arg(const Node& node, std::string_view name) {
  const Argument& arg = node.arg(name);
  if (arg.kind == Argument::Kind::training) return arg.inverted;
  const c10::IValue& value = literal(node, name);
  if (!value.isBool()) unsupported(node, "expected '", name, "' to be true or false");
  return value.toBool();
}

std::optional<double> number_arg(const Node& node, std::string_view name) {
  const c10::IValue& value = literal(node, name);
  if (value.isNone()) return std::nullopt;
  if (!value.isScalar()) unsupported(node, "expected '", name, "' to be a number");
  return value.toScalar().toDouble();
}

std::vector<int64_t> ints_arg(const Node& node, std::string_view name) {
  const Argument& arg = node.arg(name);
  if (arg.kind == Argument::Kind::literal && arg.literal.isIntList()) return arg.literal.toIntVector();
  if (arg.kind == Argument::Kind::list) {
    std::vector<int64_t> values;
    for (const Argument& item : arg.items) {
      const std::optional<int64_t> value = constant_int(item);
      if (!value) unsupported(node, "expected '", name, "' to hold constant integers");
      values.push_back(*value);
    }
    return values;
  }
  if (const std::optional<int64_t> value = constant_int(arg)) return {*value};
  unsupported(node, "expected '", name, "' to be a list of constant integers");
}

Pair pair_arg(const Node& node, std::string_view name, std::optional<Pair> fallback) {
  const std::vector<int64_t> values = ints_arg(node, name);
  if (values.empty() && fallback) return *fallback;
  if (values.size() == 1) return {values[0], values[0]};
  if (values.size() != 2)
    unsupported(node, "expected '", name, "' to hold 1 or 2 numbers, got ", values.size());
  return {values[0], values[1]};
}

runtime::Window make_window(Pair kernel, Pair stride, Pair pad, Pair dilation) {
  return {.kernel_h = kernel.h,
          .kernel_w = kernel.w,
          .stride_h = stride.h,
          .stride_w = stride.w,
          .pad_h = pad.h,
          .pad_w = pad.w,
          .dilation_h = dilation.h,
          .dilation_w = dilation.w};
}

Value* value_arg(const Node& node, std::string_view name) {
  const Argument& arg = node.arg(name);
  if (!arg.is_value()) unsupported(node, "expected '", name, "' to be a tensor of the graph");
  return arg.value;
}

std::vector<int64_t> shape_of(const Node& node, const Value& value) {
  if (!value.meta) unsupported(node, "the sizes of '", value.name, "' are not known");
  std::vector<int64_t> shape;
  for (size_t d = 0; d < value.meta->sizes.size(); ++d) {
    const graph::SizeExpr& size = value.meta->sizes[d];
    const bool rows = !size.constant() && size == graph::SizeExpr{size.numerator, 1, 0} && size.numerator > 0;
    if (d == 0 && rows) {
      shape.push_back(runtime::kBatch);
    } else if (size.constant() && d > 0) {
      shape.push_back(size.offset);
    } else {
      unsupported(node, "expected '", value.name, "' to have the batch as dimension 0 and nowhere else");
    }
  }
  if (shape.empty()) unsupported(node, "expected '", value.name, "' to have a batch dimension, got a scalar");
  return shape;
}

std::vector<int64_t> caller_shape_of(const Node& node, const Value& value) {
  if (!value.meta) unsupported(node, "the sizes of '", value.name, "' are not known");
  std::vector<int64_t> shape;
  for (const graph::SizeExpr& size : value.meta->sizes) {
    const bool batch = size == graph::SizeExpr{1, 1, 0};
    if (!batch && !size.constant())
      unsupported(node, "expected '", value.name,
                  "' to have the batch as one dimension by itself, or rows of it as the first");
    shape.push_back(batch ? runtime::kBatch : size.offset);
  }
  if (std::ranges::count(shape, runtime::kBatch) != 1)
    unsupported(node, "expected '", value.name,
                "' to have the batch as one of its dimensions: a model "
                "that comes from a file must be exported with a free batch");
  return shape;
}

namespace {

bool one_of(std::string_view op, std::initializer_list<std::string_view> ops) {
  return std::ranges::find(ops, op) != ops.end();
}

const Value* first_value(const Node& node) {
  return node.args.empty() || !node.args[0].is_value() ? nullptr : node.args[0].value;
}

/// Whether a slice or narrow whose result had the sizes of x at the batches that were tried takes all of x at
/// every batch: `x[:4]` of up to 4 items has all of them.
bool takes_all(const Node& node, const Value& x) {
  const auto rank = static_cast<int64_t>(x.meta->sizes.size());
  const std::optional<int64_t> dim = constant_int(node.arg("dim"));
  if (!dim || *dim < -rank || *dim >= rank) return false;
  const graph::SizeExpr& size = x.meta->sizes[static_cast<size_t>(*dim < 0 ? *dim + rank : *dim)];
  if (size.constant()) return true;
  const Argument& start = node.arg("start");
  if (!start.is_none() && constant_int(start) != 0) return false;
  const Argument& count = node.is("aten::slice") ? node.arg("end") : node.arg("length");
  if (count.kind == Argument::Kind::batch) return count.batch == size;
  if (node.is("aten::narrow") || constant_int(node.arg("step")) != 1) return false;
  constexpr int64_t kNoEnd = std::numeric_limits<int32_t>::max();  // or more, as "up to the end" is written
  return count.is_none() || constant_int(count).value_or(0) >= kNoEnd;
}

bool is_reshape(const Node& node) {
  if (node.is("aten::view.dtype")) return false;  // bits as numbers of another type
  return one_of(node.op(), {"aten::view", "aten::reshape", "aten::flatten", "aten::squeeze",
                            "aten::unsqueeze", "aten::_unsafe_view", "aten::view_as", "aten::reshape_as"});
}

}  // namespace

bool same_sizes(const Value& a, const Value& b) {
  return a.meta && b.meta && a.meta->sizes == b.meta->sizes;
}

bool is_identity(const Node& node) {
  if (node.kind() != Node::Kind::call || first_value(node) == nullptr || node.outputs().size() != 1)
    return false;
  if (one_of(node.op(),
             {"aten::contiguous", "aten::clone", "aten::detach", "aten::alias", "aten::lift_fresh"})) {
    return true;
  }
  if (one_of(node.op(), {"aten::dropout", "aten::feature_dropout", "aten::alpha_dropout"})) {
    return !bool_arg(node, "train");
  }
  const Value& x = *first_value(node);
  const Value& y = *node.output();
  if (one_of(node.op(), {"aten::to", "aten::_to_copy", "aten::type_as"})) {
    // Codes are read as they are, also where the model made 16 bits of their numbers.
    const bool of_codes = x.producer != nullptr && x.producer->is("ulp::dequantize_weight");
    return same_sizes(x, y) && (x.meta->dtype == y.meta->dtype || of_codes);
  }
  if (!same_sizes(x, y)) return false;
  // `x[:, 1:]` of a scripted model first takes all of the batch.
  if (one_of(node.op(), {"aten::slice", "aten::narrow"})) return takes_all(node, x);
  return is_reshape(node) || one_of(node.op(), {"aten::expand", "aten::expand_as"});
}

bool is_flatten(const Node& node) {
  if (node.kind() != Node::Kind::call || !is_reshape(node)) return false;
  const Value* x = first_value(node);
  const Value& y = *node.output();
  if (x == nullptr || !x->meta || !y.meta || y.meta->sizes.size() != 2 || x->meta->sizes.size() < 2)
    return false;  // one number an item becomes a view
  int64_t rest = 1;
  for (size_t d = 1; d < x->meta->sizes.size(); ++d) {
    if (!x->meta->sizes[d].constant()) return false;
    rest *= x->meta->sizes[d].offset;
  }
  return y.meta->sizes[0] == x->meta->sizes[0] && y.meta->sizes[1] == graph::SizeExpr{0, 1, rest};
}

}  // namespace ulp::lowering
