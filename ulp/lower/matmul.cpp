// Products of two values, or of a value and a constant: sides are read as the views they are, so that
// transposes, split heads and broadcasts before a product cost nothing.
#include <algorithm>

#include "ulp/lower/ops.h"
#include "ulp/lower/strided_view.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::kBatch;
using runtime::Layout;
using runtime::MatmulAttributes;
using runtime::Op;
using runtime::Step;

namespace {

/// One operand: a view of a tensor of the plan, or of a constant, whose tensor is -1.
struct Side {
  StridedView view;
  at::Tensor constant;
};

/// Dimensions of which the batch is only a part (heads beside it) become several.
StridedView with_batch_apart(const Node& node, const StridedView& view) {
  const std::vector<Piece>& first = view.dims.at(0);
  if (first.empty() || !first[0].is_batch()) {
    unsupported(node, "expected both sides to have the batch as dimension 0, or to be constants");
  }
  StridedView made{.tensor = view.tensor, .offset = view.offset, .dims = {{first[0]}}};
  for (size_t i = 1; i < first.size(); ++i) made.dims.push_back({first[i]});
  made.dims.insert(made.dims.end(), view.dims.begin() + 1, view.dims.end());
  return made;
}

/// At most one piece a dimension.
bool is_simple(const StridedView& view) {
  return std::ranges::all_of(view.dims, [](const auto& pieces) { return pieces.size() < 2; });
}

StridedView simple(Builder& builder, const Node& node, StridedView view) {
  view = joined(std::move(view));
  return is_simple(view) ? view : builder.laid_out(node, view);
}

Side constant_side(const Node& node, const at::Tensor& tensor, size_t rank) {
  at::Tensor value = tensor;
  if (!value.is_floating_point() || value.dim() < 2) {
    unsupported(node, "expected a constant of floating-point numbers and at least 2 dimensions");
  }
  if (value.dim() == static_cast<int64_t>(rank)) {
    if (value.size(0) != 1) unsupported(node, "expected a constant without the batch");
    value = value[0];
  }
  runtime::TensorInfo info{.shape = value.sizes().vec()};
  info.shape.insert(info.shape.begin(), kBatch);
  StridedView view = whole_view(-1, info);
  view.dims.insert(view.dims.begin() + 1, rank - std::min(rank, view.dims.size()), {});
  return {view, value};
}

Side side_of(Builder& builder, const Node& node, const char* name, size_t rank) {
  const Value* value = value_arg(node, name);
  const at::Tensor tensor = builder.graph().attribute_tensor(value);
  if (tensor.defined()) return constant_side(node, tensor, rank);
  const DataType type = builder.form_of(node, value).type;
  StridedView view = builder.view_of(node, value);
  if (type == DataType::u8) {
    const int32_t wide = builder.as(node, value, {builder.float_type(), Layout::plain});
    view = whole_view(wide, builder.plan().tensors[static_cast<size_t>(wide)]);
  } else if (type != DataType::f32 && type != DataType::bf16) {
    unsupported(node, "expected numbers, got the integers of '", value->name, "'");
  }
  if (view.dims.size() != rank) {
    unsupported(node, "expected both sides to have ", rank, " dimensions, got ", view.dims.size());
  }
  return {simple(builder, node, with_batch_apart(node, view)), {}};
}

/// Size and step of a dimension of one piece at most.
Piece piece_of(const StridedView& view, size_t dim) {
  return view.dims[dim].empty() ? Piece{1, 0} : view.dims[dim][0];
}

/// A side that holds as one dimension what stands beside the batch as several in the other is split as the other is.
void split_as(const Node& node, StridedView& view, const StridedView& finer, size_t rank) {
  std::vector<graph::SizeExpr> sizes = {{1, 1, 0}};
  const auto add = [&](const StridedView& from, size_t begin, size_t end) {
    for (size_t d = begin; d < end; ++d) sizes.push_back({0, 1, piece_of(from, d).size});
  };
  add(finer, 1, finer.dims.size() - rank + 1);
  add(view, view.dims.size() - rank + 1, view.dims.size());
  const std::optional<StridedView> split = reshaped(view, sizes);
  if (!split) unsupported(node, "expected both sides to hold the batch in the same way");
  view = *split;
}

runtime::MatmulSide matrix_of(const StridedView& view) {
  const size_t rank = view.dims.size();
  return {view.offset, piece_of(view, rank - 2).stride, piece_of(view, rank - 1).stride};
}

MatmulAttributes attributes_of(const Node& node, const StridedView& a, const StridedView& b) {
  const size_t rank = a.dims.size();
  MatmulAttributes attributes{.loops = {}, .a = matrix_of(a), .b = matrix_of(b), .shape = {}};
  attributes.rows = piece_of(a, rank - 2).size;
  attributes.inner = piece_of(a, rank - 1).size;
  attributes.columns = piece_of(b, rank - 1).size;
  for (size_t d = 1; d + 2 < rank; ++d) {
    const Piece left = piece_of(a, d), right = piece_of(b, d);
    if (left.size != right.size && left.size != 1 && right.size != 1) {
      unsupported(node, "expected sides of the same dimensions, got ", left.size, " and ", right.size);
    }
    const int64_t size = std::max(left.size, right.size);
    attributes.loops.push_back({size, left.stride, right.stride});
    attributes.shape.push_back({size});
  }
  attributes.shape.push_back({attributes.rows});
  attributes.shape.push_back({attributes.columns});
  return attributes;
}

void lower_matmul(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const std::vector<graph::SizeExpr>& sizes = node.output()->meta->sizes;
  if (sizes.size() < 3) unsupported(node, "expected matrices for each item of the batch");
  const char* second = has_arg(node, "other") ? "other" : "mat2";
  Side a = side_of(builder, node, "self", sizes.size()), b = side_of(builder, node, second, sizes.size());
  // A constant has no dimensions beside the batch where heads stand there.
  for (Side* side : {&a, &b}) {
    const size_t rank = std::max(a.view.dims.size(), b.view.dims.size());
    if (side->view.tensor < 0) {
      side->view.dims.insert(side->view.dims.begin() + 1, rank - side->view.dims.size(), {});
    }
  }
  if (a.view.dims.size() < b.view.dims.size()) split_as(node, a.view, b.view, sizes.size());
  if (b.view.dims.size() < a.view.dims.size()) split_as(node, b.view, a.view, sizes.size());
  const MatmulAttributes attributes = attributes_of(node, a.view, b.view);
  Step step = step_of(Op::matmul, node);
  std::vector<int64_t> shape = {kBatch};
  for (const runtime::ItemSize& size : attributes.shape) shape.push_back(size.size);
  step.attributes = attributes;
  for (const auto& [side, role] : {std::pair{&a, "a"}, {&b, "b"}}) {
    if (side->view.tensor >= 0) {
      step.inputs.push_back(builder.items_of(side->view.tensor));
    } else {
      step.constants[role] =
          builder.constant(node.name() + "." + role, make_constant(side->constant, DataType::f32));
    }
  }
  const Form form{result_type(builder, node.output()), Layout::plain};
  if (shape.size() == sizes.size()) return emit_same(builder, group, std::move(step), form);
  const int32_t made = builder.emit(std::move(step), node.output()->name, form, shape);
  const StridedView whole = whole_view(made, builder.plan().tensors[static_cast<size_t>(made)]);
  builder.bind_view(node.output(), reshaped(whole, sizes).value());
}

}  // namespace

LoweringTable matmul_lowerings() {
  static constexpr Lowering kTable[] = {{"aten::matmul", lower_matmul}, {"aten::bmm", lower_matmul}};
  return kTable;
}

}  // namespace ulp::lowering
