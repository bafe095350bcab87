// Which function turns a node (with what is fused to it) into steps. Each file of such functions ends in its
// own table, which ops.cpp gathers.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ulp/lower/builder.h"
#include "ulp/lower/fuse.h"
#include "ulp/lower/weights.h"

namespace ulp::lowering {

using LowerFunction = void (*)(Builder&, const Group&);

/// One line of a table.
struct Lowering {
  std::string_view op;  ///< "aten::conv2d"
  LowerFunction lower;
};
using LoweringTable = std::span<const Lowering>;

/// Null when the group's op has no lowering. Specialised steps come first, the general ones last.
LowerFunction find_lowering(const graph::Graph& graph, const Group& group);
/// A hint for ops that people meet often and that have no lowering; may be empty.
std::string hint_for(const graph::Node& node);

/// An activation that no layer took over.
void lower_activation(Builder& builder, const Group& group);
/// Arithmetic element by element (pointwise.h).
void lower_pointwise(Builder& builder, const Group& group);
/// zeros, ones and full of which one size is the batch.
void lower_filled(Builder& builder, const Group& group);
/// True for a sum that the step `add` does: of two values of one shape, or of a value and a constant of one item's
/// shape.
bool has_add_step(const graph::Graph& graph, const graph::Node& node);
/// True when everyone who reads the value wants f32: the model's result, steps that know nothing else, and arithmetic
/// behind which no layer comes any more.
bool read_as_f32(Builder& builder, const graph::Value* value);
/// The reductions among the ops.
LoweringTable reduce_lowerings();
/// flatten, squeeze or unsqueeze by the steps of these names.
void lower_flatten(Builder& builder, const Group& group, runtime::Op op);
/// One index of dimension 1 of three or more.
void lower_select(Builder& builder, const Group& group);
/// Pieces of the channels, one after the other.
void lower_slices(Builder& builder, const Group& group);
/// Where the first result of a node that cuts a dimension of this size starts.
int64_t first_index(const graph::Node& node, int64_t size);
/// An op that only moves elements and runs as a view (move.cpp).
bool is_move(const graph::Node& node);
/// What such a node with one result makes of a view; nothing where that is no view.
std::optional<StridedView> view_through(const graph::Node& node, const StridedView& x);
/// Splitting of heads and masks: part of the attention that reads them.
void lower_part_of_attention(Builder& builder, const Group& group);
/// Any reduction that leaves the batch as it is.
void lower_reduce(Builder& builder, const Group& group);
/// ulp::token_mean, and aten::mean over dimension 1 of three.
void lower_token_mean(Builder& builder, const Group& group);

/// The form a layer reads its input in: 8 bits when both input and weight are, else the inner float type.
Form layer_form(Builder& builder, const graph::Node& node, const graph::Value* x, runtime::Layout layout);
/// Adds weight and bias of a layer whose input is held as `x`.
void add_layer_constants(Builder& builder, const graph::Node& node, const Form& x, runtime::Step& step,
                         ShapeWeight shape = nullptr);
/// Emits the step of a conv, linear or add (without its residual yet) with the group's residual, activation
/// and quantize. `type`: u8 where the inputs are codes, else what results are held in that nobody wants in f32.
void emit_compute(Builder& builder, const Group& group, runtime::Step step, runtime::DataType type,
                  runtime::Layout layout);
/// The module's path, or the node's name outside of modules.
std::string layer_name(const graph::Node& node);
/// A step of this op with the node's name.
runtime::Step step_of(runtime::Op op, const graph::Node& node);
/// The form for a step that keeps its input's numbers: 8 bits stay 8 bits, the rest is in the inner float
/// type.
Form kept_form(Builder& builder, const graph::Node& node, const graph::Value* x);
/// The form in which a value is held but for the layout, for steps that widen f32, bf16 or codes as they read.
/// Throws Unsupported for integers.
Form read_form(Builder& builder, const graph::Node& node, const graph::Value* x, runtime::Layout layout);
/// The same for steps that read f32 and bf16 alone: codes are widened before.
Form float_form(Builder& builder, const graph::Node& node, const graph::Value* x, runtime::Layout layout);
/// The type of a value that a step computes in f32: f32 where all its readers want that or it holds integers, else the
/// inner float type.
runtime::DataType result_type(Builder& builder, const graph::Value* made);
/// The form of a group's result that is computed in f32: codes where the group ends in a quantize.
Form result_form(Builder& builder, const Group& group, runtime::Layout layout);
/// Emits a step whose output has this form, for the group's root.
void emit_same(Builder& builder, const Group& group, runtime::Step step, const Form& form);
/// Binds the quantize of a group whose result is held by some tensor already.
void finish_quantize(Builder& builder, const Group& group);

}  // namespace ulp::lowering
