// Ops that leave numbers in their order: other sizes, and what is broadcast.
#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

namespace {

/// The result has the same numbers in the same order.
void add_view(Builder& builder, const graph::Node& node) {
  if (builder.is_integers(node, "self")) return builder.pass_integers(node, "self");
  const graph::Value& value = *node.output();
  if (const int heads = builder.merged(node, "self", true);
      heads >= 0 && builder.has_shape(node, value, heads))
    return builder.set(value, heads);
  const bool same = value.meta && value.meta->sizes == builder.sizes(node, "self");
  for (const bool transposed : {false, true}) {
    const int heads = builder.merged(node, "self", transposed);
    if (heads >= 0 && same) builder.set_merged(value, heads, transposed);
  }
  builder.defer(node, value, [&builder, &node] { builder.set_viewed(node, "self"); });
}

void add_detach(Builder& builder, const graph::Node& node) {
  const int x = builder.in_memory(node, "self");
  if (!builder.needs_gradient(x)) return builder.set(*node.output(), x);
  const int held = builder.make_alias(x);
  builder.set_needs_gradient(held, false);
  builder.set(*node.output(), held);
}

/// Whether the sizes, with ones before them, are those of `to` from dimension `begin` to `end` and one elsewhere.
bool has_sizes_of(const std::vector<graph::SizeExpr>& sizes, const std::vector<graph::SizeExpr>& to,
                  size_t begin, size_t end) {
  if (sizes.size() > to.size()) return false;
  const size_t missing = to.size() - sizes.size();
  for (size_t d = 0; d < to.size(); ++d) {
    const graph::SizeExpr size = d < missing ? graph::SizeExpr{.offset = 1} : sizes[d - missing];
    const graph::SizeExpr wanted = d >= begin && d < end ? to[d] : graph::SizeExpr{.offset = 1};
    if (!(size == wanted)) return false;
  }
  return true;
}

}  // namespace

int Builder::broadcast(const graph::Node& node, std::string_view argument, const graph::Value& to) {
  const std::vector<graph::SizeExpr> own = sizes(node, argument);
  if (!to.meta) refuse(node, "expected a graph that knows its sizes, got none");
  const std::vector<graph::SizeExpr>& wanted = to.meta->sizes;
  const int x = padded(node, argument);
  if (own == wanted) return x;
  const int made = make_of_any_type(node, to);
  const size_t last = wanted.empty() ? 0 : wanted.size() - 1;
  set_needs_gradient(made, needs_gradient(x));
  if (at(x).rows == RowCount{} && at(x).width == 1) {
    emit({.op = Op::spread, .out = made, .a = x});
    on_backward(made, [this, x](int gradient) {
      contribute(x, false, [&](int out, bool) { emit({.op = Op::total, .out = out, .a = gradient}); });
    });
  } else if (has_sizes_of(own, wanted, last, wanted.size()) && wanted.back().constant()) {
    emit({.op = Op::repeat_rows, .out = made, .a = x});
    on_backward(made, [this, x](int gradient) {
      contribute(x, true, [&](int out, bool adds) {
        emit({.op = Op::column_sums, .out = out, .a = gradient, .adds = adds});
      });
    });
  } else if (has_sizes_of(own, wanted, 0, last) && wanted.back().constant()) {
    emit({.op = Op::repeat_columns, .out = made, .a = x});
    on_backward(made, [this, x](int gradient) {
      contribute(x, false, [&](int out, bool) { emit({.op = Op::row_sums, .out = out, .a = gradient}); });
    });
  } else {
    return repeated(node, x, own, made, wanted);
  }
  return made;
}

std::vector<OpRow> shape_rules() {
  return {{"aten::view", add_view},
          {"aten::reshape", add_view},
          {"aten::flatten.using_ints", add_view},
          {"aten::unflatten.int", add_view},
          {"aten::squeeze", add_view},
          {"aten::squeeze.dim", add_view},
          {"aten::unsqueeze", add_view},
          {"aten::contiguous", add_view},
          {"aten::clone", add_view},
          {"aten::alias", add_view},
          {"aten::detach", add_detach}};
}

}  // namespace ulp::train::compiled
