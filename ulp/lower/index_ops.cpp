// Elements that ids pick: gather, index_select, indexing by tensors.
#include <torch/types.h>

#include <algorithm>

#include "ulp/lower/ids.h"
#include "ulp/lower/ops.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using graph::Argument;
using graph::Node;
using graph::Value;
using runtime::DataType;
using runtime::GatherAttributes;
using runtime::kBatch;
using runtime::Layout;
using runtime::Op;
using runtime::Step;

namespace {

/// The ids' view without all dimensions but the batch and `dim` where it repeats along them, as an expanded index
/// does, and where the picked rows are whole; nothing for another.
std::optional<StridedView> one_id_a_row(Builder& builder, const Node& node, const std::vector<int64_t>& x,
                                        const Value* ids, int64_t dim) {
  StridedView view = joined(builder.view_of(node, ids));
  const std::vector<int64_t> shape = shape_of(node, *ids);
  if (shape.size() != x.size() || !shape_of(view)) return std::nullopt;
  for (size_t d = 1; d < shape.size(); ++d) {
    if (static_cast<int64_t>(d) == dim) continue;
    const bool repeats =
        std::ranges::all_of(view.dims[d], [](const Piece& piece) { return piece.stride == 0; });
    if (shape[d] != x[d] || !repeats) return std::nullopt;
  }
  view.dims = {view.dims[0], view.dims[static_cast<size_t>(dim)]};
  return view;
}

void lower_gather(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  const Value* ids = value_arg(node, has_arg(node, "index") ? "index" : "indices");
  const std::vector<int64_t> shape = shape_of(node, *x), places = shape_of(node, *ids);
  const int64_t dim = dimension_of(node, shape), size = shape[static_cast<size_t>(dim)];
  if (node.is("aten::take_along_dim")) {
    std::vector<int64_t> same = places;
    same.at(static_cast<size_t>(dim)) = size;
    if (same != shape) unsupported(node, "expected indices of the input's sizes but for 'dim'");
  }
  const Form form = held_form(builder, node, x);
  Step step = step_of(Op::gather, node);
  step.inputs = {builder.as(node, x, form)};
  if (const auto rows = one_id_a_row(builder, node, shape, ids, dim)) {
    step.attributes = GatherAttributes{.dim = dim};
    step.inputs.push_back(ids_tensor(builder, node, ids, *rows, size));
  } else {
    step.attributes = GatherAttributes{.dim = dim, .each = true};
    step.inputs.push_back(ids_tensor(builder, node, ids, size));
  }
  emit_same(builder, group, std::move(step), form);
}

/// Rows of a tensor of the batch by ids that are a constant, or one list for each item.
void emit_rows(Builder& builder, const Group& group, const Value* x, const GatherAttributes& own,
               const Value* ids) {
  const Node& node = *group.root;
  const int64_t size = shape_of(node, *x).at(static_cast<size_t>(own.dim));
  const Form form = held_form(builder, node, x);
  Step step = step_of(Op::gather, node);
  step.attributes = own;
  step.inputs = {builder.as(node, x, form)};
  if (const at::Tensor fixed = builder.graph().attribute_tensor(ids); fixed.defined()) {
    step.constants["ids"] = builder.constant(ids->producer->target(), make_constant(fixed, DataType::i64));
  } else {
    step.inputs.push_back(ids_tensor(builder, node, ids, size));
  }
  emit_same(builder, group, std::move(step), form);
}

/// Rows of a parameter or constant by ids of the batch: those of a table, whatever its rank.
void emit_table_rows(Builder& builder, const Group& group, const at::Tensor& table, const Value* ids,
                     bool from_end) {
  const Node& node = *group.root;
  const at::Tensor rows = table.reshape({table.size(0), -1});
  if (!at::isFloatingType(table.scalar_type()) && (table.abs() > kExactInFloat).any().item<bool>()) {
    unsupported(node, "expected a table of integers that f32 holds");
  }
  Step step = step_of(Op::embedding, node);
  step.attributes = runtime::EmbeddingAttributes{from_end};
  step.inputs = {ids_tensor(builder, node, ids, rows.size(0))};
  const Form form{result_type(builder, node.output()), Layout::plain};
  step.constants["weight"] =
      builder.constant(value_arg(node, "self")->producer->target(), make_constant(rows, form.type));
  std::vector<int64_t> shape = shape_of(node, *ids);
  shape.push_back(rows.size(1));
  if (table.dim() == 2) return emit_same(builder, group, std::move(step), form);
  const int32_t made = builder.emit(std::move(step), node.output()->name, form, shape);
  const StridedView whole = whole_view(made, builder.plan().tensors[static_cast<size_t>(made)]);
  builder.bind_view(node.output(), reshaped(whole, node.output()->meta->sizes).value());
}

void lower_index_select(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value *x = value_arg(node, "self"), *ids = value_arg(node, "index");
  const at::Tensor table = builder.graph().attribute_tensor(x);
  if (!table.defined()) {
    const GatherAttributes own{.dim = dimension_of(node, shape_of(node, *x))};
    if (!builder.graph().attribute_tensor(ids).defined()) {
      unsupported(node, "expected a constant 'index', got one of the batch, which would be two dimensions");
    }
    return emit_rows(builder, group, x, own, ids);
  }
  if (int_arg(node, "dim") != 0) unsupported(node, "expected rows of a constant, which are dimension 0");
  emit_table_rows(builder, group, table, ids, false);
}

/// torch.arange(batch): the items of the batch in order.
bool counts_items(const Value* value) {
  const Node& node = *value->producer;
  if (!node.is("aten::arange")) return false;
  const Argument& end = node.arg("end");
  const auto is = [&](const char* name, int64_t number) {
    return !has_arg(node, name) || number_arg(node, name) == static_cast<double>(number);
  };
  return end.kind == Argument::Kind::batch && end.batch == graph::SizeExpr{1, 1, 0} && is("start", 0) &&
         is("step", 1);
}

/// The tensors of an index list with the dimensions that they stand for.
std::vector<std::pair<int64_t, const Value*>> indices_of(const Node& node) {
  const Argument& list = node.arg("indices");
  std::vector<std::pair<int64_t, const Value*>> indices;
  for (size_t d = 0; list.kind == Argument::Kind::list && d < list.items.size(); ++d) {
    if (list.items[d].is_value()) indices.emplace_back(static_cast<int64_t>(d), list.items[d].value);
  }
  if (indices.empty()) unsupported(node, "expected a list of tensors of the graph");
  return indices;
}

/// x[..., ids, ...], where an id below 0 counts from the end. Several constants are one by now.
void lower_index(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const auto indices = indices_of(node);
  const Value* x = value_arg(node, "self");
  for (const auto& [dim, ids] : indices) {
    if (ids->meta && ids->meta->dtype == at::kBool)
      unsupported(node, "expected integers, got a mask: the size of the result depends on the data");
  }
  const auto& [dim, ids] = indices.back();
  const at::Tensor table = builder.graph().attribute_tensor(x);
  if (table.defined() && indices.size() == 1 && dim == 0) {
    return emit_table_rows(builder, group, table, ids, true);
  }
  const bool fixed = builder.graph().attribute_tensor(ids).defined();
  const bool of_items =
      indices.size() == 2 && dim == 1 && counts_items(indices[0].second) && ids->meta->sizes.size() == 1;
  if (table.defined() || (!of_items && (indices.size() != 1 || !fixed || dim == 0))) {
    unsupported(node,
                "expected constants as indices of dimensions behind the batch, or one index for each item ",
                "beside torch.arange of the batch");
  }
  emit_rows(builder, group, x, {.dim = dim, .from_end = true}, ids);
}

/// Part of the indexing that reads it.
void lower_arange(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const auto takes = [&](const Node* user) {
    return user->is("aten::index") && user->arg("indices").kind == Argument::Kind::list &&
           user->arg("indices").items.size() == 2 && user->arg("indices").items[0].value == node.output();
  };
  if (counts_items(node.output()) && std::ranges::all_of(builder.graph().users(node.output()), takes)) return;
  unsupported(node, "expected constant bounds, or that of the batch beside an index for each item");
}

}  // namespace

LoweringTable index_lowerings() {
  static constexpr Lowering kTable[] = {{"aten::gather", lower_gather},
                                        {"aten::take_along_dim", lower_gather},
                                        {"aten::index_select", lower_index_select},
                                        {"aten::index.Tensor", lower_index},
                                        {"aten::arange", lower_arange}};
  return kTable;
}

}  // namespace ulp::lowering
