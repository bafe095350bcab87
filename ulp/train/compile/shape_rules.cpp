// Ops that only move numbers: other sizes for the same row-major order, and columns side by side.
#include <algorithm>

#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

namespace {

/// The result has the same numbers in the same order.
void add_view(Builder& builder, const graph::Node& node) {
  if (builder.is_integers(node, "self")) return builder.pass_integers(node, "self");
  builder.set_reshaped(node, builder.padded(node, "self"));
}

void add_detach(Builder& builder, const graph::Node& node) {
  const int held = builder.make_alias(builder.matrix(node, "self"));
  builder.set_needs_gradient(held, false);
  builder.set(*node.output(), held);
}

/// The dimension that a call names, counted from the first.
int64_t dimension(Builder& builder, const graph::Node& node, size_t dimensions) {
  const auto d = static_cast<int64_t>(builder.number(node, "dim"));
  return d < 0 ? d + static_cast<int64_t>(dimensions) : d;
}

void expect_last(Builder& builder, const graph::Node& node, const std::vector<graph::SizeExpr>& sizes) {
  const int64_t d = dimension(builder, node, sizes.size());
  if (d + 1 != static_cast<int64_t>(sizes.size()) || !sizes.back().constant())
    builder.refuse(node, "expected the last dimension, of a fixed size, got dimension ", d, " of ",
                   sizes.size());
}

void add_concat(Builder& builder, const graph::Node& node) {
  std::vector<int> parts;
  if (!node.output()->meta) builder.refuse(node, "expected a graph that knows its sizes, got none");
  expect_last(builder, node, node.output()->meta->sizes);
  for (const graph::Argument& item : node.arg("tensors").items)
    parts.push_back(builder.padded(builder.matrix(node, item)));
  const int y = builder.make(node, *node.output());
  bool needs = false;
  int64_t column = 0;
  for (const int part : parts) {
    if (!(builder.at(part).rows == builder.at(y).rows))
      builder.refuse(node, "expected tensors with the same rows, got others");
    const int64_t width = builder.at(part).width;
    builder.emit({.op = Op::copy, .out = y, .a = part, .to = column, .columns = width});
    column += width;
    needs = needs || builder.needs_gradient(part);
  }
  builder.set_needs_gradient(y, needs);
  builder.set(*node.output(), y);
  builder.on_backward(y, [&builder, parts](int gradient) {
    int64_t from = 0;
    for (const int part : parts) {
      const int64_t width = builder.at(part).width;
      builder.contribute(part, true, [&](int out, bool adds) {
        builder.emit(
            {.op = Op::copy, .out = out, .a = gradient, .adds = adds, .from = from, .columns = width});
      });
      from += width;
    }
  });
}

/// Columns of the last dimension from `from` on, as many as the result has.
void add_columns(Builder& builder, const graph::Node& node, const graph::Value& value, int64_t from) {
  const int x = builder.padded(node, "self");
  const int y = builder.make(node, value);
  const int64_t width = builder.at(y).width;
  if (!(builder.at(x).rows == builder.at(y).rows) || from < 0 || from + width > builder.at(x).width)
    builder.refuse(node, "expected columns of the last dimension, got others");
  builder.emit({.op = Op::copy, .out = y, .a = x, .from = from, .columns = width});
  builder.set_needs_gradient(y, builder.needs_gradient(x));
  builder.set(value, y);
  builder.on_backward(y, [&builder, x, from, width](int gradient) {
    builder.contribute(x, true, [&](int out, bool adds) {
      if (!adds) builder.emit({.op = Op::fill, .out = out});
      builder.emit({.op = Op::copy, .out = out, .a = gradient, .adds = true, .to = from, .columns = width});
    });
  });
}

/// A start that may count from the end.
int64_t start_of(Builder& builder, const graph::Node& node, std::string_view argument, int64_t size) {
  if (builder.literal(node, argument).isNone()) return 0;
  const auto start = static_cast<int64_t>(builder.number(node, argument));
  return start < 0 ? std::max<int64_t>(start + size, 0) : std::min(start, size);
}

void add_slice(Builder& builder, const graph::Node& node) {
  const auto sizes = builder.sizes(node, "self");
  const int64_t d = dimension(builder, node, sizes.size());
  const bool whole = node.output()->meta && node.output()->meta->sizes == sizes;
  if (whole && builder.number(node, "step") == 1)
    return builder.set(*node.output(), builder.matrix(node, "self"));  // x[:, ...]
  expect_last(builder, node, sizes);
  if (builder.number(node, "step") != 1) builder.refuse(node, "expected a step of 1, got another one");
  add_columns(builder, node, *node.output(),
              start_of(builder, node, "start", sizes[static_cast<size_t>(d)].offset));
}

void add_narrow(Builder& builder, const graph::Node& node) {
  const auto sizes = builder.sizes(node, "self");
  expect_last(builder, node, sizes);
  add_columns(builder, node, *node.output(), start_of(builder, node, "start", sizes.back().offset));
}

void add_select(Builder& builder, const graph::Node& node) {
  const auto sizes = builder.sizes(node, "self");
  expect_last(builder, node, sizes);
  // The rows stay and the last dimension goes: one column, which may have become rows of another width.
  const int x = builder.padded(node, "self");
  const int64_t from = start_of(builder, node, "index", sizes.back().offset);
  const int column = builder.make(builder.at(x).rows, 1);
  builder.emit({.op = Op::copy, .out = column, .a = x, .from = from, .columns = 1});
  builder.set_needs_gradient(column, builder.needs_gradient(x));
  builder.on_backward(column, [&builder, x, from](int gradient) {
    builder.contribute(x, true, [&](int out, bool adds) {
      if (!adds) builder.emit({.op = Op::fill, .out = out});
      builder.emit({.op = Op::copy, .out = out, .a = gradient, .adds = true, .to = from, .columns = 1});
    });
  });
  const int y = builder.make(node, *node.output());
  if (builder.alike(column, y)) return builder.set(*node.output(), column);
  builder.emit({.op = Op::reshape, .out = y, .a = column});
  builder.set_needs_gradient(y, builder.needs_gradient(x));
  builder.set(*node.output(), y);
  builder.on_backward(y, [&builder, column](int gradient) {
    builder.contribute(column, false,
                       [&](int out, bool) { builder.emit({.op = Op::reshape, .out = out, .a = gradient}); });
  });
}

/// chunk, split and split_with_sizes: the results lie side by side.
void add_split(Builder& builder, const graph::Node& node) {
  expect_last(builder, node, builder.sizes(node, "self"));
  int64_t from = 0;
  for (const auto& value : node.outputs()) {
    add_columns(builder, node, *value, from);
    if (value->meta) from += value->meta->sizes.back().offset;
  }
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
  const int made = make(node, to);
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
    refuse(node, "expected '", argument,
           "' to be broadcast along the last dimension or all others, got other sizes");
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
          {"aten::detach", add_detach},
          {"aten::cat", add_concat},
          {"aten::slice.Tensor", add_slice},
          {"aten::narrow", add_narrow},
          {"aten::select.int", add_select},
          {"aten::chunk", add_split},
          {"aten::split.Tensor", add_split},
          {"aten::split_with_sizes", add_split}};
}

}  // namespace ulp::train::compiled
