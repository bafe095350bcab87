// The table: which function turns a node (with what is fused to it) into steps.
#pragma once

#include <string>
#include <string_view>

#include "ulp/lower/builder.h"
#include "ulp/lower/fuse.h"

namespace ulp::lowering {

using Lowering = void (*)(Builder&, const Group&);

/// Null when the op has no lowering.
Lowering find_lowering(const graph::Node& node);
/// The ops of the table, for messages.
std::string supported_ops();
/// A hint for ops that people meet often and that have no lowering; may be empty.
std::string hint_for(const graph::Node& node);

void lower_conv(Builder& builder, const Group& group);
void lower_linear(Builder& builder, const Group& group);
void lower_add(Builder& builder, const Group& group);
void lower_activation(Builder& builder, const Group& group);
void lower_max_pool(Builder& builder, const Group& group);
void lower_avg_pool(Builder& builder, const Group& group);
void lower_global_pool(Builder& builder, const Group& group);
void lower_mean(Builder& builder, const Group& group);
void lower_reshape(Builder& builder, const Group& group);
void lower_concat(Builder& builder, const Group& group);
void lower_slices(Builder& builder, const Group& group);
void lower_channel_shuffle(Builder& builder, const Group& group);
void lower_depth_to_space(Builder& builder, const Group& group);
void lower_resize(Builder& builder, const Group& group);
/// Between sequences [N, C, L] and images of height 1; else as lower_reshape and lower_part_of_attention.
void lower_squeeze(Builder& builder, const Group& group);
void lower_unsqueeze(Builder& builder, const Group& group);
void lower_softmax(Builder& builder, const Group& group);
void lower_embedding(Builder& builder, const Group& group);
void lower_layer_norm(Builder& builder, const Group& group);
void lower_select(Builder& builder, const Group& group);
void lower_attention(Builder& builder, const Group& group);
/// Splitting of heads and masks: part of the attention that reads them.
void lower_part_of_attention(Builder& builder, const Group& group);
/// aten::lstm, aten::gru and their dynamic forms.
void lower_recurrent(Builder& builder, const Group& group);
/// A node beside a recurrent layer that lower_recurrent takes care of: it cuts out a last state or swaps time
/// and batch.
bool belongs_to_recurrent(const graph::Graph& graph, const graph::Node& node);
/// The first state of recurrent layers.
void lower_zeros(Builder& builder, const Group& group);
/// ulp::token_mean, and aten::mean over dimension 1 of three.
void lower_token_mean(Builder& builder, const Group& group);
void lower_linear_dynamic(Builder& builder, const Group& group);
/// Read by the layer it belongs to.
void lower_coded_weight(Builder& builder, const Group& group);
void lower_quantize(Builder& builder, const Group& group);
void lower_dequantize(Builder& builder, const Group& group);

/// Emits the step of a conv, linear or add (without its residual yet) with the group's residual, activation
/// and quantize; decides the output's type from the inputs' type.
void emit_compute(Builder& builder, const Group& group, runtime::Step step, runtime::DataType input_type,
                  runtime::Layout layout);
/// The module's path, or the node's name outside of modules.
std::string layer_name(const graph::Node& node);
/// A step of this op with the node's name.
runtime::Step step_of(runtime::Op op, const graph::Node& node);
/// The form for a step that keeps its input's numbers: 8 bits stay 8 bits, the rest is in the inner float
/// type.
Form kept_form(Builder& builder, const graph::Node& node, const graph::Value* x);
/// A mean of 8-bit codes is rounded to codes; that is what the graph does only where it quantizes the mean
/// with the scale of the input. Elsewhere the mean is taken in float.
Form mean_form(Builder& builder, const Group& group, const graph::Value* x);
/// Emits a step that keeps type and scale of its input, in `form`, for the group's root.
void emit_same(Builder& builder, const Group& group, runtime::Step step, const Form& form);
/// Binds the quantize of a group whose result is held by some tensor already.
void finish_quantize(Builder& builder, const Group& group);

}  // namespace ulp::lowering
