// Ops that only move elements: each makes a view of a tensor, and whoever reads it as a tensor gets one
// strided copy of all of them together, or none.
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "ulp/lower/ids.h"
#include "ulp/lower/incremental_decoding.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/strided_view.h"

namespace ulp::lowering {

using graph::Node;
using graph::SizeExpr;
using graph::Value;
using runtime::Layout;
using runtime::Op;
using runtime::Step;

namespace {

using Maybe = std::optional<StridedView>;

size_t dim_of(const Node& node, const char* name, size_t rank) {
  const auto n = static_cast<int64_t>(rank);
  const int64_t dim = int_arg(node, name);
  if (dim < -n || dim >= n) unsupported(node, "expected '", name, "' below ", rank, ", got ", dim);
  return static_cast<size_t>(dim < 0 ? dim + n : dim);
}

std::vector<int64_t> dims_arg(const Node& node, const char* name, size_t rank) {
  std::vector<int64_t> dims = ints_arg(node, name);
  for (int64_t& dim : dims) dim += dim < 0 ? static_cast<int64_t>(rank) : 0;
  return dims;
}

const std::vector<SizeExpr>& sizes_of(const Node& node, const Value& value) {
  if (!value.meta) unsupported(node, "the sizes of '", value.name, "' are not known");
  return value.meta->sizes;
}

Maybe reshape(const Node& node, const StridedView& x) {
  return reshaped(x, sizes_of(node, *node.output()));
}

Maybe swap(const StridedView& x, size_t a, size_t b) {
  StridedView made = x;
  std::swap(made.dims.at(a), made.dims.at(b));
  return made;
}

Maybe transpose(const Node& node, const StridedView& x) {
  const size_t rank = x.dims.size();
  for (const auto& [a, b] : {std::pair{"dim0", "dim1"}, {"axis0", "axis1"}}) {
    if (has_arg(node, a)) return swap(x, dim_of(node, a, rank), dim_of(node, b, rank));
  }
  return rank < 2 ? x : swap(x, rank - 2, rank - 1);  // t, mT
}

Maybe permute(const Node& node, const StridedView& x) {
  return permuted(x, dims_arg(node, "dims", x.dims.size()));
}

Maybe movedim(const Node& node, const StridedView& x) {
  const size_t rank = x.dims.size();
  const std::vector<int64_t> from = dims_arg(node, "source", rank), to = dims_arg(node, "destination", rank);
  std::vector<int64_t> order(rank, -1), rest;
  for (size_t i = 0; i < from.size(); ++i) order.at(static_cast<size_t>(to[i])) = from[i];
  for (int64_t d = 0; d < static_cast<int64_t>(rank); ++d) {
    if (std::ranges::find(from, d) == from.end()) rest.push_back(d);
  }
  auto next = rest.begin();
  for (int64_t& d : order) {
    if (d < 0) d = *next++;
  }
  return permuted(x, order);
}

/// To the sizes of the result, whose dimensions are counted from the last.
Maybe expand(const Node& node, const StridedView& x) {
  const std::vector<SizeExpr>& sizes = sizes_of(node, *node.output());
  StridedView made = x;
  made.dims.insert(made.dims.begin(), sizes.size() - x.dims.size(), {});
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (!made.dims[d].empty()) continue;
    if (!sizes[d].constant()) return std::nullopt;
    made = repeated(std::move(made), d, sizes[d].offset);
  }
  return made;
}

Maybe repeat(const Node& node, const StridedView& x) {
  const std::vector<int64_t> times = ints_arg(node, has_arg(node, "repeats") ? "repeats" : "dims");
  StridedView made = x;
  const size_t rank = std::max(times.size(), x.dims.size());
  made.dims.insert(made.dims.begin(), rank - x.dims.size(), {});
  for (size_t i = 0; i < times.size(); ++i)
    made = repeated(std::move(made), rank - times.size() + i, times[i]);
  return made;
}

Maybe repeat_each(const Node& node, const StridedView& x) {
  if (!has_arg(node, "dim") || node.arg("dim").is_none()) return std::nullopt;
  return repeated(x, dim_of(node, "dim", x.dims.size()), int_arg(node, "repeats"), true);
}

Maybe flip(const Node& node, const StridedView& x) {
  Maybe made = x;
  for (const int64_t dim : dims_arg(node, "dims", x.dims.size())) {
    if (made) made = flipped(*std::move(made), static_cast<size_t>(dim));
  }
  return made;
}

Maybe unfold(const Node& node, const StridedView& x) {
  return windows(x, dim_of(node, "dimension", x.dims.size()), int_arg(node, "size"), int_arg(node, "step"));
}

Maybe select(const Node& node, const StridedView& x) {
  const size_t dim = dim_of(node, "dim", x.dims.size());
  const std::optional<int64_t> size = size_of(x, dim);
  if (!size) return std::nullopt;
  const int64_t index = int_arg(node, "index");
  return picked(x, dim, index < 0 ? index + *size : index);
}

/// [C * r * r, H, W] -> [C, H * r, W * r].
Maybe pixel_shuffle(const Node& node, const StridedView& x) {
  const int64_t r = int_arg(node, "upscale_factor");
  const std::vector<SizeExpr>& out = sizes_of(node, *node.output());
  if (out.size() != 4 || !out[1].constant()) return std::nullopt;
  const auto fixed = [](int64_t size) { return SizeExpr{0, 1, size}; };
  const Maybe split =
      reshaped(x, {out[0], out[1], fixed(r), fixed(r), fixed(out[2].offset / r), fixed(out[3].offset / r)});
  return split ? reshaped(permuted(*split, {0, 1, 4, 2, 5, 3}), out) : std::nullopt;
}

/// [C, H * r, W * r] -> [C * r * r, H, W].
Maybe pixel_unshuffle(const Node& node, const StridedView& x) {
  const int64_t r = int_arg(node, "downscale_factor");
  const std::vector<SizeExpr>& out = sizes_of(node, *node.output());
  if (out.size() != 4 || !out[1].constant()) return std::nullopt;
  const auto fixed = [](int64_t size) { return SizeExpr{0, 1, size}; };
  const Maybe split =
      reshaped(x, {out[0], fixed(out[1].offset / (r * r)), out[2], fixed(r), out[3], fixed(r)});
  return split ? reshaped(permuted(*split, {0, 1, 3, 5, 2, 4}), out) : std::nullopt;
}

/// The diagonal of two dimensions becomes the last one.
Maybe diagonal(const Node& node, const StridedView& x) {
  const size_t a = dim_of(node, "dim1", x.dims.size()), b = dim_of(node, "dim2", x.dims.size());
  const int64_t offset = int_arg(node, "offset"), down = std::max<int64_t>(-offset, 0),
                right = std::max<int64_t>(offset, 0);
  const std::optional<int64_t> rows = size_of(x, a), columns = size_of(x, b);
  if (!rows || !columns) return std::nullopt;
  const int64_t count = std::min(*rows - down, *columns - right);
  if (count < 1) unsupported(node, "expected a diagonal of at least one element");
  Maybe square = narrowed(x, a, down, count, 1);
  if (square) square = narrowed(*square, b, right, count, 1);
  if (!square) return std::nullopt;
  StridedView made = joined(*square);
  const std::vector<Piece> across = made.dims[a], along = made.dims[b];
  if (across.size() > 1 || along.size() > 1) return std::nullopt;
  for (const size_t d : {std::max(a, b), std::min(a, b)})
    made.dims.erase(made.dims.begin() + static_cast<int64_t>(d));
  made.dims.emplace_back();
  if (count > 1) made.dims.back() = {{count, across[0].stride + along[0].stride}};
  return made;
}

/// The elements of a dense tensor in another arrangement of each item.
Maybe as_strided(const Node& node, const StridedView& x) {
  int64_t item = 1;
  for (size_t d = x.dims.size(); d-- > 1;) {
    const std::optional<int64_t> size = size_of(x, d);
    const std::vector<Piece> own = joined(x).dims[d];
    if (!size || own.size() > 1 || (own.size() == 1 && own[0].stride != item)) return std::nullopt;
    item *= *size;
  }
  if (x.offset != 0 || !shape_of(x)) return std::nullopt;
  const std::vector<SizeExpr>& sizes = sizes_of(node, *node.output());
  const std::vector<int64_t> strides = ints_arg(node, "stride");
  const int64_t begin = node.arg("storage_offset").is_none() ? 0 : int_arg(node, "storage_offset");
  bool inside = strides.size() == sizes.size() && !sizes.empty() && sizes[0] == SizeExpr{1, 1, 0} &&
                strides[0] == item && begin >= 0;
  StridedView made{.tensor = x.tensor, .offset = begin, .dims = {{{runtime::kBatch, 0}}}};
  int64_t last = begin;
  for (size_t d = 1; inside && d < sizes.size(); ++d) {
    inside = sizes[d].constant();
    last += (sizes[d].offset - 1) * strides[d];
    made.dims.emplace_back();
    if (sizes[d].offset > 1) made.dims.back().push_back({sizes[d].offset, strides[d]});
  }
  if (!inside || last >= item) unsupported(node, "expected an arrangement that stays inside each item");
  return made;
}

using MakeView = Maybe (*)(const Node&, const StridedView&);
struct ViewOp {
  std::string_view op;
  MakeView make;
};

constexpr ViewOp kViewOps[] = {{"aten::view", reshape},
                               {"aten::reshape", reshape},
                               {"aten::flatten", reshape},
                               {"aten::_unsafe_view", reshape},
                               {"aten::unflatten", reshape},
                               {"aten::view_as", reshape},
                               {"aten::reshape_as", reshape},
                               {"aten::squeeze", reshape},
                               {"aten::unsqueeze", reshape},
                               {"aten::transpose", transpose},
                               {"aten::swapaxes", transpose},
                               {"aten::swapdims", transpose},
                               {"aten::t", transpose},
                               {"aten::mT", transpose},
                               {"aten::permute", permute},
                               {"aten::movedim", movedim},
                               {"aten::moveaxis", movedim},
                               {"aten::expand", expand},
                               {"aten::expand_as", expand},
                               {"aten::repeat", repeat},
                               {"aten::tile", repeat},
                               {"aten::repeat_interleave", repeat_each},
                               {"aten::flip", flip},
                               {"aten::unfold", unfold},
                               {"aten::select", select},
                               {"aten::diagonal", diagonal},
                               {"aten::as_strided", as_strided},
                               {"aten::pixel_shuffle", pixel_shuffle},
                               {"aten::pixel_unshuffle", pixel_unshuffle}};

MakeView view_op(const Node& node) {
  if (node.kind() != Node::Kind::call) return nullptr;
  const auto found = std::ranges::find(kViewOps, node.op(), &ViewOp::op);
  return found == std::end(kViewOps) ? nullptr : found->make;
}

constexpr std::string_view kCuts[] = {"aten::slice",        "aten::narrow",
                                      "aten::chunk",        "aten::split",
                                      "aten::tensor_split", "aten::split_with_sizes",
                                      "aten::unsafe_chunk", "aten::unsafe_split",
                                      "aten::unbind",       "aten::unsafe_split_with_sizes"};

bool cuts(const Node& node) {
  return node.kind() == Node::Kind::call && std::ranges::find(kCuts, node.op()) != std::end(kCuts);
}

/// True where a step of its own for this op may be better than a view: it reads a tensor, and nothing further
/// is moved.
bool stands_alone(const Builder& builder, graph::Graph& graph, const Node& node) {
  if (builder.is_view(node.args.at(0).value)) return false;
  return std::ranges::all_of(node.outputs(), [&](const auto& output) {
    return std::ranges::none_of(graph.users(output.get()), [](const Node* user) { return is_move(*user); });
  });
}

/// The steps of this name, where they do the work.
bool lower_by_own_step(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = node.args.at(0).value;
  if (!stands_alone(builder, builder.graph(), node) || holds_integers(builder, node, x)) return false;
  const size_t rank = sizes_of(node, *x).size(), made = sizes_of(node, *node.output()).size();
  if (is_flatten(node) && rank > 1) {
    lower_flatten(builder, group, Op::flatten);
  } else if (node.is("aten::squeeze") && rank == 4 && made == 3 && has_arg(node, "dim") &&
             ints_arg(node, "dim") == std::vector<int64_t>{2}) {
    lower_flatten(builder, group, Op::squeeze);
  } else if (node.is("aten::unsqueeze") && made == 4 && int_arg(node, "dim") == 2) {
    lower_flatten(builder, group, Op::unsqueeze);
  } else if (node.is("aten::select") && rank >= 3 && dim_of(node, "dim", rank) == 1 &&
             builder.form_of(node, x).layout == Layout::plain) {
    lower_select(builder, group);
  } else {
    return false;
  }
  return true;
}

/// A tensor of 1 in the dimension of the batch, for every item of it.
void emit_constant(Builder& builder, const Group& group, const at::Tensor& value, int64_t batch) {
  const Node& node = *group.root;
  Step step = step_of(Op::constant, node);
  const bool single = value.dim() == 1;  // an item is one number, which a step has as a row of one
  const at::Tensor item = single ? value : value.select(batch, 0);
  const bool ids = at::isIntegralType(item.scalar_type(), false);
  const Form form{ids ? runtime::DataType::i64 : runtime::DataType::f32};
  step.inputs = {builder.batch_source()};
  step.constants["value"] = builder.constant(node.output()->name + ".value", make_constant(item, form.type));
  if (batch == 0 && !single) return emit_same(builder, group, std::move(step), form);
  std::vector<int64_t> shape = item.sizes().vec(), order;
  shape.insert(shape.begin(), runtime::kBatch);
  const int32_t made = builder.emit(std::move(step), node.output()->name + ".rows", form, shape);
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
    order.push_back(d == batch ? 0 : d < batch ? d + 1 : d);
  const StridedView rows = whole_view(made, builder.plan().tensors[static_cast<size_t>(made)]);
  if (single) return builder.bind_view(node.output(), reshaped(rows, node.output()->meta->sizes).value());
  builder.bind_view(node.output(), permuted(rows, order));
}

/// The sizes of the node's result with 1 for the batch, and which dimension that is.
struct OneItem {
  std::vector<int64_t> sizes;
  int64_t batch;
};

OneItem one_item_of(const Node& node) {
  OneItem one{caller_shape_of(node, *node.output()), 0};
  const auto at = std::ranges::find(one.sizes, runtime::kBatch);
  one.batch = at - one.sizes.begin();
  *at = 1;
  return one;
}

/// The rows of a table from the context's position on, for every item of the batch.
void lower_from_position(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  at::Tensor table = builder.graph().attribute_tensor(node.args.at(0).value);
  if (!table.defined()) unsupported(node, "expected a table that is a constant");
  table = rows_by_position(table, int_arg(node, "dim"));
  Step step = step_of(Op::constant, node);
  const bool ids = at::isIntegralType(table.scalar_type(), false);
  const Form form{ids ? runtime::DataType::i64 : runtime::DataType::f32};
  step.attributes = runtime::ConstantAttributes{.rows = table.size(0)};
  step.inputs = {builder.batch_source()};
  step.constants["value"] = builder.constant(node.output()->name + ".value", make_constant(table, form.type));
  std::vector<int64_t> shape = {runtime::kBatch};
  shape.insert(shape.end(), table.sizes().begin(), table.sizes().end());
  const std::string name = node.output()->name;
  builder.bind(node.output(), builder.emit(std::move(step), name, form, shape));
}

/// A parameter that is expanded or repeated for every item of the batch.
void lower_constant(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  at::Tensor value = builder.graph().attribute_tensor(node.args.at(0).value);
  const OneItem one = one_item_of(node);
  const bool expands = node.is("aten::expand") || node.is("aten::expand_as");
  if (value.scalar_type() == at::kBool || !(expands || node.is("aten::repeat"))) {
    unsupported(node, "expected an expand or repeat of a parameter of numbers");
  }
  if (expands) {
    value = value.expand(one.sizes);
  } else {
    const graph::Argument& repeats = node.arg("repeats");
    std::vector<int64_t> times;
    for (size_t i = 0; i < repeats.items.size(); ++i) {
      const graph::Argument& count = repeats.items[i];
      const bool fixed = count.kind == graph::Argument::Kind::literal && count.literal.isInt();
      if (!fixed && static_cast<int64_t>(i) != one.batch)
        unsupported(node, "expected only one of 'repeats' to follow the batch");
      times.push_back(fixed ? count.literal.toInt() : 1);
    }
    value = value.repeat(times);
  }
  emit_constant(builder, group, value, one.batch);
}

/// make(x); where it gives nothing, x becomes its elements laid out in plain order first.
template <typename Make>
StridedView view_or_copy(Builder& builder, const Node& node, StridedView& x, Make make) {
  Maybe made = make(x);
  if (!made && (shape_of(x) || has_rows(x))) {
    x = builder.laid_out(node, x);
    made = make(x);
  }
  if (!made) unsupported(node, "expected it to leave the batch, dimension 0, as it is");
  return *std::move(made);
}

void lower_move(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  if (!builder.bound(x)) {
    if (builder.graph().attribute_tensor(x).defined()) return lower_constant(builder, group);
    return lower_part_of_attention(builder, group);
  }
  if (has_arg(node, "dtype")) unsupported(node, "expected a view of the same type");
  if (lower_by_own_step(builder, group)) return;
  StridedView whole = builder.view_of(node, x);
  const auto make = [&](const StridedView& view) { return view_op(node)(node, view); };
  builder.bind_view(node.output(), view_or_copy(builder, node, whole, make));
}

void lower_cut(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  const size_t rank = sizes_of(node, *x).size();
  const size_t dim = dim_of(node, "dim", rank);
  const int64_t step = node.is("aten::slice") ? int_arg(node, "step") : 1;
  const bool unbind = node.is("aten::unbind");
  const size_t channels = rank == 4 ? 1 : rank - 1;
  StridedView whole = builder.view_of(node, x);
  if (dim > 0 && dim == channels && step == 1 && !unbind && !holds_integers(builder, node, x) &&
      stands_alone(builder, builder.graph(), node)) {
    return lower_slices(builder, group);
  }
  const std::optional<int64_t> size = size_of(whole, dim);
  if (!size) unsupported(node, "expected it to leave the batch, dimension 0, as it is");
  int64_t begin = first_index(node, *size);
  for (const auto& part : node.outputs()) {
    const int64_t count = unbind ? 1 : sizes_of(node, *part).at(dim).offset;
    if (count < 1) unsupported(node, "expected parts of at least one element");
    if (!builder.graph().users(part.get()).empty()) {
      const auto cut = [&](const StridedView& view) {
        return unbind ? picked(view, dim, begin) : narrowed(view, dim, begin, count, step);
      };
      builder.bind_view(part.get(), view_or_copy(builder, node, whole, cut));
    }
    begin += count;
  }
}

}  // namespace

void lower_filled(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const OneItem one = one_item_of(node);
  double value = node.is("aten::ones") ? 1 : 0;
  if (node.is("aten::full")) value = number_arg(node, "fill_value").value_or(0);
  emit_constant(builder, group, torch::full(one.sizes, value, at::kFloat), one.batch);
}

std::optional<StridedView> view_through(const Node& node, const StridedView& x) {
  const MakeView make = view_op(node);
  if (make == nullptr || has_arg(node, "dtype")) return std::nullopt;
  try {
    return make(node, x);
  } catch (const Unsupported&) {
    return std::nullopt;
  }
}

bool is_move(const Node& node) {
  return view_op(node) != nullptr || cuts(node);
}

LoweringTable move_lowerings() {
  static const std::vector<Lowering> table = [] {
    std::vector<Lowering> rows;
    for (const ViewOp& row : kViewOps) rows.push_back({row.op, lower_move});
    for (const std::string_view op : kCuts) rows.push_back({op, lower_cut});
    for (const std::string_view op : {"aten::ones", "aten::full"}) rows.push_back({op, lower_filled});
    rows.push_back({"ulp::from_position", lower_from_position});
    return rows;
  }();
  return table;
}

}  // namespace ulp::lowering
