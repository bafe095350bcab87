// The plan under construction: which tensor of the plan holds a value of the graph, in which form, and its
// constants.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ulp/lower/match.h"
#include "ulp/lower/strided_view.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::lowering {

/// How a tensor of the plan stores a value.
struct Form {
  runtime::DataType type = runtime::DataType::f32;
  runtime::Layout layout = runtime::Layout::plain;
  float scale = 1.0F;
  int32_t zero_point = 0;
  bool operator==(const Form&) const = default;
};

/// NHWC for images, plain for everything else. Volumes [N, C, D, H, W] lie as the step before left them: see
/// Builder::layout_of.
runtime::Layout inner_layout(size_t rank);

class Builder {
 public:
  Builder(graph::Graph& graph, runtime::DataType float_type) : graph_(graph), float_type_(float_type) {}

  graph::Graph& graph() { return graph_; }
  /// f32 or bf16: the type of what is not quantized.
  runtime::DataType float_type() const { return float_type_; }
  runtime::Plan& plan() { return plan_; }
  /// What read_as_f32() found.
  std::unordered_map<const graph::Value*, bool>& f32_values() { return f32_values_; }

  // Values.
  /// `same` holds what `of` holds (identities; dequantize of codes).
  void alias(const graph::Value* same, const graph::Value* of);
  void bind(const graph::Value* value, int32_t tensor);
  bool bound(const graph::Value* value) const;
  /// The value is this view: it costs a step when someone reads it as a tensor, one for each layout.
  /// The same in the place of what was bound.
  void bind_instead(const graph::Value* value, int32_t tensor);
  void bind_view(const graph::Value* value, StridedView view);
  /// True for a value that was bound so.
  bool is_view(const graph::Value* value) const;
  /// The value is signs, which this tensor holds as bits: only steps of binary layers read it.
  void bind_bits(const graph::Value* signs, int32_t tensor);
  /// The tensor of such a value. Throws Unsupported for `reader` where there is none.
  int32_t bits_of(const graph::Node& reader, const graph::Value* signs) const;
  /// A bound value as a view of a tensor. Throws Unsupported for `reader` as form_of does.
  StridedView view_of(const graph::Node& reader, const graph::Value* value) const;
  /// The view laid out in plain order. Throws Unsupported where its dimension 0 does not begin with the
  /// batch.
  StridedView laid_out(const graph::Node& reader, const StridedView& view);
  /// The tensor whose items are those of the batch, all rows of an item (TensorInfo::times) side by side; the
  /// tensor itself where an item has one row. Views are views of it.
  int32_t items_of(int32_t tensor);
  /// The tensor that holds the view in this layout: the view's own where its bytes lie so already and it has its
  /// shape, else the result of a new step of this name. Throws as laid_out() does.
  int32_t emit_view(const graph::Node& reader, const StridedView& view, runtime::Layout layout,
                    const std::string& name);
  /// The form in which the value was produced. Throws Unsupported for `reader` when the value is a parameter.
  Form form_of(const graph::Node& reader, const graph::Value* value) const;
  /// inner_layout() of the value's rank; for a volume the layout in which it is held.
  runtime::Layout layout_of(const graph::Node& reader, const graph::Value* value) const;
  /// The view as a tensor of this form.
  int32_t emit_view_as(const graph::Node& reader, const StridedView& view, const Form& form,
                       const std::string& name);
  /// The tensor holding the value in this form; adds a convert step on first need, with an output of this
  /// name.
  int32_t as(const graph::Node& reader, const graph::Value* value, const Form& form,
             const std::string& name = "");

  // Building.
  /// The node that the steps which follow belong to, for messages.
  void work_on(const graph::Node& node) { node_ = &node; }
  int32_t add_tensor(const std::string& name, const Form& form, std::vector<int64_t> shape,
                     int64_t times = 1);
  /// A tensor [kept..., before..., batch, ...] of layout plain whose dimensions before the batch, but for the
  /// first `kept`, and `joined` behind it, are rows of the batch (TensorInfo::times).
  int32_t emit_rows(int32_t tensor, int64_t joined, const std::string& name, int64_t kept = 0);
  /// Adds the step with a new output tensor, which it returns: of as many rows for each item as its inputs
  /// have. Throws Unsupported where these have different ones.
  int32_t emit(runtime::Step step, const std::string& name, const Form& form, std::vector<int64_t> shape);
  /// A tensor that steps may read for its batch alone.
  int32_t batch_source() const;
  /// Stores a constant under its name, or finds the equal one stored before; returns the name it got.
  std::string constant(const std::string& name, runtime::Constant constant);

 private:
  const graph::Value* resolve(const graph::Value* value) const;
  Form form(int32_t tensor) const;
  int32_t convert(int32_t tensor, const Form& form, std::string name);
  runtime::Layout layout_of_view(const StridedView& view) const;
  void expect_rows(const graph::Value& value, int32_t tensor) const;

  graph::Graph& graph_;
  runtime::DataType float_type_;
  runtime::Plan plan_;
  std::unordered_map<const graph::Value*, const graph::Value*> aliases_;
  /// Tensors that hold a value, the one it was produced in first.
  std::unordered_map<const graph::Value*, std::vector<int32_t>> tensors_;
  std::unordered_map<const graph::Value*, StridedView> views_;
  std::unordered_map<const graph::Value*, int32_t> bits_;
  std::unordered_set<std::string> tensor_names_;
  std::unordered_map<int32_t, int32_t> items_;  ///< what items_of() made
  const graph::Node* node_ = nullptr;
  std::unordered_map<const graph::Value*, bool> f32_values_;
};

/// A tensor's numbers as a constant of this type (f32 or bf16 from any float type; i8, i32 as they are).
runtime::Constant make_constant(const at::Tensor& tensor, runtime::DataType type);

}  // namespace ulp::lowering
