// Static post-training quantization of a captured model: prepare, run calibration data, convert.
//
//   auto prepared = ulp::quant::prepare(captured, Recipe::x86_int8());
//   for (auto& batch : calibration) prepared->forward({batch});
//   auto quantized = ulp::quant::convert(prepared);
//
// The converted graph is an ordinary LibTorch program in float32 whose numbers are those of the static int8
// contract: every quantized value is written out as a `quantize` directly followed by its `dequantize`.
//
// Form of the converted graph (ulp::lower relies on exactly this):
//
// 1. A quantized activation %v (scale f32[1], zero_point i32[1], codes u8 [0, 255], dtype at::kByte;
//    where the recipe's scheme is signed, [-128, 127] and Char):
//        %v_q  = ulp::quantize(%v, %quant.v.scale, %quant.v.zero_point, -1, 0, 255, Byte)
//        %v_dq = ulp::dequantize(%v_q, %quant.v.scale, %quant.v.zero_point, -1)
//    Every other reader of %v (the graph's output too) reads %v_dq. %v_q has one reader, %v_dq. Graph inputs
//    that feed a quantized op are quantized in the same way.
// 2. A quantized convolution or linear layer reads a dequantized activation, weight and bias:
//        %w = ulp::dequantize(%conv1.weight.int8, %conv1.weight.scale, %conv1.weight.zero_point, 0)
//        %b = ulp::dequantize(%conv1.bias.int32, %conv1.bias.scale, %conv1.bias.zero_point, 0)
//        %y = aten::conv2d(%x_dq, %w, %b, stride, padding, dilation, groups)
//    or  %y = aten::linear(%x_dq, %w, %b)
//    The names with a suffix are buffers of the graph: weight.int8 s8 in the weight's shape with codes
//    [-127, 127], weight.scale f32[O], weight.zero_point i32[O], all zero; bias.int32 i32[O], bias.scale
//    f32[O] with bias.scale[c] = x.scale * weight.scale[c] (one f32 product), bias.zero_point i32[O], all
//    zero. %b is a literal None for a layer without bias. A parameter read by two layers gets a second set of
//    buffers ("conv1.weight_2.int8" ...) where their scales differ. A per-tensor weight recipe gives
//    scale [1], axis -1. conv1d and conv3d are as conv2d; conv_transpose2d and batch norms alone are conv2d
//    here (graph/passes/pass.h).
// 3. What may stand between the float result of a quantized op and the `quantize` of rule 1 (one step of an
//    engine). Each value inside a chain has one reader:
//        conv2d | linear
//        conv2d | linear -> relu | relu6
//        conv2d | linear -> add(result, %r_dq) or add(%r_dq, result) [-> relu | relu6]
//        add(%a_dq, %b_dq) [-> relu | relu6]
//    An add between two layers is in the chain of the first; the other operand, %r_dq, may be computed after
//    that layer, but always before the add. relu and relu6 stand for every clamp of these bounds, as
//    aten::hardtanh(_, 0, 6) or aten::clamp(_, 0). Every add is aten::add.Tensor with alpha 1 and two
//    operands of one shape. A chain whose result no quantized op reads ends in float: there is no `quantize`
//    after it (the logits of the last linear layer), but for the backend tflite_int8. What a chain may hold for a backend is
//    in quant/backend.h.
// 4. Ops that keep the parameters read %x_dq and are followed by a quantize / dequantize pair with the very
//    same scale and zero_point attributes as %x_q (where a quantized op reads the result in the end; else
//    they end in float): aten::max_pool1d and 2d, flatten, view, reshape (not one that joins an attention's
//    heads: codes start behind it); on results of chains and cats also channel_shuffle, chunk, split,
//    split_with_sizes, slice, narrow, upsample_nearest2d, upsample_bilinear2d, ulp::depth_to_space, and a relu
//    that is in no chain of rule 3.
//    aten::avg_pool1d, 2d and adaptive_avg_pool1d, 2d (a mean over H and W is one) of results of chains, cats
//    and averages are followed by a pair of their own, for the backend tflite_int8 by that of %x_q.
// 5. aten::cat along the channels (dimension 1 of an image, the last of anything else) of results of chains,
//    averages and cats, where a quantized op reads its result in the end: it reads %a_dq, %b_dq, ... and is
//    followed by a pair. An operand that nothing else reads has the very same attributes as the result, others
//    their own.
// 6. aten::softmax, sigmoid and tanh, where the recipe's `ops` name them and they read a result of the above:
//    they read %x_dq and are followed by a pair whoever reads their result (Recipe::tflite_int8 fixes its
//    parameters).
// 7. aten::scaled_dot_product_attention, where the recipe's `ops` name it and each of query, key and value is a part (views,
//    transposes, permutes, pieces) of a result of the above: those results are followed by a pair, and the parts are of %v_dq.
//    Attention's own result has a pair where a quantized op reads it.
// 8. Everything else is float and stands outside.
//
// Integers: q = clamp(round_half_even(x * (1 / s)) + z, qmin, qmax), see quant/operators/ops.h.
#pragma once

#include <memory>

#include "ulp/base/export.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/quant/recipe.h"

namespace ulp::quant {

/// A graph with observers on the inputs and results of the ops that the recipe quantizes. Run calibration
/// data through forward(); results are those of the float model in eval mode.
class ULP_API PreparedModule final : public graph::GraphModule {
 public:
  PreparedModule(std::shared_ptr<graph::Graph> graph, Recipe recipe, graph::PassReport report);
  const Recipe& recipe() const { return recipe_; }
  /// Lists what will be quantized, and what will not and why.
  const graph::PassReport& report() const { return report_; }

 private:
  Recipe recipe_;
  graph::PassReport report_;
};

/// A prepared copy of a captured model (canonical form, without training-only nodes, batch norm folded); the
/// captured one stays as it is. Throws ulp::Error for an invalid recipe, a skip pattern that matches nothing,
/// or a model with nothing to quantize.
ULP_API std::shared_ptr<PreparedModule> prepare(const std::shared_ptr<graph::GraphModule>& captured,
                                                const Recipe& recipe);

/// The model with explicit quantize and dequantize nodes, in eval mode. Throws ulp::Error naming the layer
/// when an observer has seen no data or NaN. `report` receives what was quantized, and what not and why.
ULP_API std::shared_ptr<graph::GraphModule> convert(const std::shared_ptr<PreparedModule>& prepared,
                                                    graph::PassReport* report = nullptr);

}  // namespace ulp::quant
