// Reductions over any dimensions but the batch, and running sums and products along one.
#include <algorithm>
#include <limits>

#include "ulp/lower/ids.h"
#include "ulp/lower/ops.h"

namespace ulp::lowering {

using graph::Node;
using graph::Value;
using kernels::ReduceKind;
using runtime::DataType;
using runtime::Layout;
using runtime::Op;
using runtime::ReduceAttributes;
using runtime::Step;

namespace {

/// The dimensions of an argument, counted from 0 and sorted; refuses the batch and a reduction over
/// everything.
std::vector<int64_t> reduced_dims(const Node& node, size_t rank) {
  std::vector<int64_t> dims;
  if (has_arg(node, "dim") && !node.arg("dim").is_none()) dims = ints_arg(node, "dim");
  for (int64_t& dim : dims) dim += dim < 0 ? static_cast<int64_t>(rank) : 0;
  std::ranges::sort(dims);
  if (dims.empty() || dims[0] == 0) {
    unsupported(node, "expected it to leave the batch, dimension 0, as it is");
  }
  return dims;
}

ReduceKind norm_kind(const Node& node) {
  const char* name = has_arg(node, "ord") ? "ord" : "p";
  const double order = number_arg(node, name).value_or(2);
  if (order == 1) return ReduceKind::norm1;
  if (order == 2) return ReduceKind::norm2;
  if (order == std::numeric_limits<double>::infinity()) return ReduceKind::norm_inf;
  unsupported(node, "expected the norm of order 1, 2 or infinity, got ", order);
}

struct KindOf {
  std::string_view op;
  ReduceKind kind;
};

constexpr KindOf kKinds[] = {
    {"aten::sum", ReduceKind::sum},       {"aten::mean", ReduceKind::mean},
    {"aten::amax", ReduceKind::max},      {"aten::amin", ReduceKind::min},
    {"aten::max", ReduceKind::max},       {"aten::min", ReduceKind::min},
    {"aten::prod", ReduceKind::prod},     {"aten::var", ReduceKind::var},
    {"aten::std", ReduceKind::std},       {"aten::argmax", ReduceKind::argmax},
    {"aten::argmin", ReduceKind::argmin}, {"aten::any", ReduceKind::any},
    {"aten::all", ReduceKind::all},       {"aten::logsumexp", ReduceKind::logsumexp}};

ReduceKind kind_of(const Node& node) {
  const auto found = std::ranges::find(kKinds, node.op(), &KindOf::op);
  return found == std::end(kKinds) ? norm_kind(node) : found->kind;
}

float correction_of(const Node& node) {
  if (has_arg(node, "correction")) return static_cast<float>(number_arg(node, "correction").value_or(1));
  return has_arg(node, "unbiased") && bool_arg(node, "unbiased") ? 1.0F : 0.0F;
}

/// The form in which a reduction reads: as it is held, but for images of which neither the channels nor all
/// pixels are reduced.
Form input_form(Builder& builder, const Node& node, const Value* x, const ReduceAttributes& attributes) {
  Form form = builder.form_of(node, x);
  const auto has = [&](int64_t dim) {
    return std::ranges::find(attributes.dims, dim, &runtime::ReducedDim::dim) != attributes.dims.end();
  };
  bool pixels = true;
  for (size_t d = 2; d < shape_of(node, *x).size(); ++d) pixels = pixels && has(static_cast<int64_t>(d));
  const bool as_held = attributes.keepdim || has(1) || pixels;
  if (form.layout == Layout::nhwc && !as_held) form.layout = Layout::plain;
  return form;
}

void emit_reduce(Builder& builder, const Node& node, const Value* made, ReduceAttributes attributes,
                 const Group* group) {
  const Value* x = value_arg(node, "self");
  const Form in = input_form(builder, node, x, attributes);
  const Layout layout = attributes.keepdim ? in.layout : Layout::plain;
  const bool place = attributes.kind == ReduceKind::argmax || attributes.kind == ReduceKind::argmin;
  Step step = step_of(Op::reduce, node);
  step.attributes = std::move(attributes);
  step.inputs = {holds_integers(builder, node, x) ? exact_numbers(builder, node, x)
                                                  : builder.as(node, x, in)};
  if (group != nullptr && !place) {
    return emit_same(builder, *group, std::move(step), result_form(builder, *group, layout));
  }
  const Form out{place ? DataType::f32 : result_type(builder, made), layout};
  if (group != nullptr) return emit_same(builder, *group, std::move(step), out);
  builder.bind(made, builder.emit(std::move(step), made->name, out, shape_of(node, *made)));
}

}  // namespace

void lower_reduce(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  if (has_arg(node, "dtype") && !node.arg("dtype").is_none() && node.output()->meta->dtype != at::kFloat) {
    unsupported(node, "expected a result of f32");
  }
  const size_t rank = shape_of(node, *value_arg(node, "self")).size();
  ReduceAttributes attributes{.kind = kind_of(node), .dims = {}};
  for (const int64_t dim : reduced_dims(node, rank)) attributes.dims.push_back({dim});
  attributes.keepdim = has_arg(node, "keepdim") && bool_arg(node, "keepdim");
  if (attributes.kind == ReduceKind::var || attributes.kind == ReduceKind::std) {
    attributes.correction = correction_of(node);
  }
  if (node.outputs().size() == 1) {
    emit_reduce(builder, node, node.output(), attributes, &group);
    if (node.is("aten::sum") && makes_integers(node)) look_at_integers(builder, node, group.result);
    return;
  }
  // The extreme and its place: a step for each that is read.
  const bool largest = attributes.kind == ReduceKind::max;
  for (const size_t i : {0, 1}) {
    if (builder.graph().users(node.output(i)).empty()) continue;
    if (i == 1) attributes.kind = largest ? ReduceKind::argmax : ReduceKind::argmin;
    emit_reduce(builder, node, node.output(i), attributes, nullptr);
  }
}

namespace {

void lower_cumsum(Builder& builder, const Group& group) {
  const Node& node = *group.root;
  const Value* x = value_arg(node, "self");
  const bool product = node.is("aten::cumprod");
  if (product && x->meta && !at::isFloatingType(x->meta->dtype))
    unsupported(node, "expected floats: products of integers pass what f32 holds");
  const std::vector<int64_t> dims = reduced_dims(node, shape_of(node, *x).size());
  const Form form{DataType::f32, Layout::plain};
  Step step = step_of(Op::cumsum, node);
  step.attributes = runtime::CumulativeAttributes{dims[0], product};
  step.inputs = {exact_numbers(builder, node, x)};
  emit_same(builder, group, std::move(step), form);
  if (makes_integers(node)) look_at_integers(builder, node, group.result);
}

}  // namespace

LoweringTable reduce_lowerings() {
  static constexpr Lowering kTable[] = {
      {"aten::sum", lower_reduce},       {"aten::amax", lower_reduce},
      {"aten::amin", lower_reduce},      {"aten::max.dim", lower_reduce},
      {"aten::min.dim", lower_reduce},   {"aten::prod", lower_reduce},
      {"aten::var", lower_reduce},       {"aten::std", lower_reduce},
      {"aten::norm", lower_reduce},      {"aten::linalg_vector_norm", lower_reduce},
      {"aten::argmax", lower_reduce},    {"aten::argmin", lower_reduce},
      {"aten::any", lower_reduce},       {"aten::all", lower_reduce},
      {"aten::logsumexp", lower_reduce}, {"aten::cumsum", lower_cumsum},
      {"aten::cumprod", lower_cumsum}};
  return kTable;
}

}  // namespace ulp::lowering
