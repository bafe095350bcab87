// Sums of tensors, softmax over the last dimension, and losses that a graph computes itself.
#include <algorithm>
#include <utility>

#include "ulp/train/compile/builder.h"

namespace ulp::train::compiled {

int add_total(Builder& builder, int x, bool mean) {
  const int y = builder.make(RowCount{}, 1);
  builder.emit({.op = Op::total, .out = y, .a = x, .mean = mean});
  builder.set_needs_gradient(y, builder.needs_gradient(x));
  builder.on_backward(y, [&builder, x, mean](int gradient) {
    builder.contribute(x, false, [&](int out, bool) {
      builder.emit({.op = Op::spread, .out = out, .a = gradient, .mean = mean});
    });
  });
  return y;
}

int add_row_sums(Builder& builder, int x, bool mean) {
  const int y = builder.make(builder.at(x).rows, 1);
  builder.emit({.op = Op::row_sums, .out = y, .a = x, .mean = mean});
  builder.set_needs_gradient(y, builder.needs_gradient(x));
  builder.on_backward(y, [&builder, x, mean](int gradient) {
    builder.contribute(x, false, [&](int out, bool) {
      builder.emit({.op = Op::repeat_columns, .out = out, .a = gradient, .mean = mean});
    });
  });
  return y;
}

namespace {

template <bool kMean>
void add_whole(Builder& builder, const graph::Node& node) {
  if (!builder.literal(node, "dtype").isNone()) builder.refuse(node, "expected no dtype, got one");
  builder.add_count(node, builder.count_of(node, builder.sizes(node, "self")));
  builder.set(*node.output(), add_total(builder, builder.padded(node, "self"), kMean));
}

/// The size of the last dimension that is summed.
int64_t order_width(const std::vector<graph::SizeExpr>& sizes, const std::vector<bool>& reduced) {
  for (size_t d = sizes.size(); d-- > 0;)
    if (reduced[d]) return sizes[d].offset;
  return 1;
}

/// The dimensions that a call names, counted from the first; all of them where it names none.
std::vector<bool> reduced_dimensions(Builder& builder, const graph::Node& node, size_t dimensions) {
  const c10::IValue& given = builder.literal(node, "dim");
  const std::vector<int64_t> dims = given.isNone() ? std::vector<int64_t>{} : given.toIntVector();
  std::vector<bool> reduced(dimensions, dims.empty());
  for (const int64_t dim : dims) {
    const int64_t d = dim < 0 ? dim + static_cast<int64_t>(dimensions) : dim;
    if (d < 0 || d >= static_cast<int64_t>(dimensions))
      builder.refuse(node, "expected dimensions of ", dimensions, ", got ", dim);
    reduced[static_cast<size_t>(d)] = true;
  }
  return reduced;
}

/// Over all dimensions, or over some of fixed sizes, which come last then.
template <bool kMean>
void add_along(Builder& builder, const graph::Node& node) {
  if (!builder.literal(node, "dtype").isNone()) builder.refuse(node, "expected no dtype, got one");
  const auto sizes = builder.sizes(node, "self");
  const std::vector<bool> reduced = reduced_dimensions(builder, node, sizes.size());
  const int x = builder.padded(node, "self");
  if (std::ranges::all_of(reduced, [](bool one) { return one; })) {
    builder.add_count(node, builder.count_of(node, sizes));
    return builder.set_reshaped(node, add_total(builder, x, kMean));
  }
  Move order;
  RowCount kept;
  int64_t summed = 1;
  for (const bool last : {false, true}) {
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (reduced[d] != last) continue;
      order.dims.push_back(builder.move_dim(node, sizes, d));
      if (last && !sizes[d].constant())
        builder.refuse(node, "expected sums along dimensions of fixed sizes, got one that follows the batch");
      if (last) summed *= sizes[d].offset;
    }
  }
  std::vector<graph::SizeExpr> rows;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (!reduced[d]) rows.push_back(sizes[d]);
  builder.add_count(node, {0, 1, summed});
  kept = builder.count_of(node, rows);
  const bool in_order = std::ranges::is_sorted(reduced);
  const int moved = in_order
                        ? x
                        : builder.moved(x, std::move(order), kept.times(summed / order_width(sizes, reduced)),
                                        order_width(sizes, reduced));
  const int summands = builder.reshaped(moved, kept, summed);
  builder.set_reshaped(node, add_row_sums(builder, summands, kMean));
}

template <bool kLog>
int add_softmax_of(Builder& builder, int x) {
  const int y = builder.make_like(x);
  builder.emit({.op = kLog ? Op::log_softmax : Op::softmax, .out = y, .a = x});
  builder.set_needs_gradient(y, builder.needs_gradient(x));
  builder.on_backward(y, [&builder, x, y](int gradient) {
    builder.contribute(x, false, [&](int out, bool) {
      builder.emit(
          {.op = kLog ? Op::log_softmax_gradient : Op::softmax_gradient, .out = out, .a = gradient, .b = y});
    });
  });
  return y;
}

template <bool kLog>
void add_softmax(Builder& builder, const graph::Node& node) {
  const auto sizes = builder.sizes(node, "self");
  const auto dim = static_cast<int64_t>(builder.number(node, "dim"));
  const auto last = static_cast<int64_t>(sizes.size()) - 1;
  if ((dim != -1 && dim != last) || last < 0 || !sizes.back().constant())
    builder.refuse(node, "expected the last dimension, of a fixed size, got dimension ", dim);
  if (!builder.literal(node, "dtype").isNone()) builder.refuse(node, "expected no dtype, got one");
  builder.set(*node.output(), add_softmax_of<kLog>(builder, builder.padded(node, "self")));
}

/// Writes to `y` the column of each row of `x` that its class names.
void add_pick(Builder& builder, const graph::Node& node, int y, int x, int classes) {
  builder.add_bound(node, classes, builder.at(x).width, builder.at(y).rows);
  builder.emit({.op = Op::pick, .out = y, .a = x, .classes = classes});
  builder.set_needs_gradient(y, builder.needs_gradient(x));
  builder.on_backward(y, [&builder, x, classes](int gradient) {
    builder.contribute(x, false, [&](int out, bool) {
      builder.emit({.op = Op::unpick, .out = out, .a = gradient, .classes = classes});
    });
  });
}

/// One column a row.
void add_gather(Builder& builder, const graph::Node& node) {
  const auto sizes = builder.sizes(node, "self"), index = builder.sizes(node, "index");
  const auto dim = static_cast<int64_t>(builder.number(node, "dim"));
  const auto last = static_cast<int64_t>(sizes.size()) - 1;
  const bool one_a_row =
      index.size() == sizes.size() && last >= 0 && index.back() == graph::SizeExpr{.offset = 1};
  if ((dim != -1 && dim != last) || !one_a_row || !sizes.back().constant())
    builder.refuse(node, "expected one index a row into the last dimension, got other sizes");
  const int x = builder.padded(node, "self");
  const int classes = builder.integers(node, "index");
  const int y = builder.make(node, *node.output());
  if (!(builder.at(x).rows == builder.at(y).rows))
    builder.refuse(node, "expected as many indices as rows, got others");
  add_pick(builder, node, y, x, classes);
  builder.set(*node.output(), y);
}

/// The negative sum or mean of one column a row of log-probabilities. Without weights of classes; an index that is to be
/// ignored is refused: here where it is a class, in the step otherwise, as one that is out of range.
void add_picked_loss(Builder& builder, const graph::Node& node, int x) {
  const double reduction = builder.number(node, "reduction");
  if (reduction != 1 && reduction != 2) builder.refuse(node, "expected a mean or a sum, got no reduction");
  if (!node.arg("weight").is_none()) builder.refuse(node, "expected no weights of classes, got some");
  if (builder.sizes(node, "self").size() != 2)
    builder.refuse(node, "expected two dimensions, got ", builder.sizes(node, "self").size());
  const double ignored = builder.number(node, "ignore_index");
  if (ignored >= 0 && ignored < static_cast<double>(builder.at(x).width))
    builder.refuse(node, "expected an ignore_index that is no class, got ", ignored, " of ",
                   builder.at(x).width, " classes");
  const int classes = builder.integers(node, "target");
  const int picked = builder.make(builder.at(x).rows, 1);
  add_pick(builder, node, picked, x, classes);
  const int total = add_total(builder, picked, reduction == 1), y = builder.make(RowCount{}, 1);
  builder.emit(
      {.op = Op::value, .out = y, .a = total, .function = kernels::Differentiable::affine, .p = {-1.0F}});
  builder.set_needs_gradient(y, builder.needs_gradient(x));
  builder.on_backward(y, [&builder, total](int gradient) { builder.pass_on(total, gradient, -1.0F); });
  builder.set(*node.output(), y);
}

void add_nll_loss(Builder& builder, const graph::Node& node) {
  add_picked_loss(builder, node, builder.padded(node, "self"));
}

void add_cross_entropy_loss(Builder& builder, const graph::Node& node) {
  const double smoothing = builder.number(node, "label_smoothing");
  if (smoothing != 0) builder.refuse(node, "expected no label smoothing, got ", smoothing);
  const int x = builder.padded(node, "self");
  add_picked_loss(builder, node, add_softmax_of<true>(builder, x));
}

void add_mse_loss(Builder& builder, const graph::Node& node) {
  constexpr double kMean = 1, kSum = 2;
  const double reduction = builder.number(node, "reduction");
  if (reduction != kMean && reduction != kSum)
    builder.refuse(node, "expected a mean or a sum, got no reduction");
  if (builder.sizes(node, "self") != builder.sizes(node, "target"))
    builder.refuse(node, "expected two tensors of the same sizes, got others, which would be broadcast");
  const int a = builder.padded(node, "self"), b = builder.padded(node, "target");
  const int difference = builder.make_like(a), square = builder.make_like(a);
  builder.set_needs_gradient(difference, builder.needs_gradient(a) || builder.needs_gradient(b));
  builder.set_needs_gradient(square, builder.needs_gradient(difference));
  builder.emit({.op = Op::add_scaled, .out = difference, .a = a, .b = b, .p = {-1.0F}});
  builder.on_backward(difference, [&builder, a, b](int gradient) {
    builder.pass_on(a, gradient);
    builder.pass_on(b, gradient, -1.0F);
  });
  builder.emit(
      {.op = Op::value, .out = square, .a = difference, .function = kernels::Differentiable::square});
  builder.on_backward(square, [&builder, difference](int gradient) {
    builder.contribute(difference, false, [&](int out, bool) {
      builder.emit({.op = Op::gradient,
                    .out = out,
                    .a = gradient,
                    .b = difference,
                    .function = kernels::Differentiable::square});
    });
  });
  builder.set(*node.output(), add_total(builder, square, reduction == kMean));
}

}  // namespace

std::vector<OpRow> reduction_rules() {
  return {{"aten::mean", add_whole<true>},
          {"aten::sum", add_whole<false>},
          {"aten::mean.dim", add_along<true>},
          {"aten::sum.dim_IntList", add_along<false>},
          {"aten::nll_loss", add_nll_loss},
          {"aten::nll_loss_nd", add_nll_loss},
          {"aten::cross_entropy_loss", add_cross_entropy_loss},
          {"aten::log_softmax.int", add_softmax<true>},
          {"aten::softmax.int", add_softmax<false>},
          {"aten::gather", add_gather},
          {"aten::mse_loss", add_mse_loss}};
}

}  // namespace ulp::train::compiled
