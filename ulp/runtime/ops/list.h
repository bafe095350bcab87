// The list of the engine's ops: the one place that names them all. The enum, the words of engine files, the
// table of definitions and what a step may hold follow from it. A new op is a line here and its file,
// <op>_op.{h,cpp} (op.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>

#include "ulp/base/export.h"
#include "ulp/runtime/ops/attention_op.h"
#include "ulp/runtime/ops/attributes.h"
#include "ulp/runtime/ops/binary_conv_op.h"
#include "ulp/runtime/ops/channel_shuffle_op.h"
#include "ulp/runtime/ops/concat_op.h"
#include "ulp/runtime/ops/constant_op.h"
#include "ulp/runtime/ops/conv_op.h"
#include "ulp/runtime/ops/depth_to_space_op.h"
#include "ulp/runtime/ops/dynamic_linear_op.h"
#include "ulp/runtime/ops/embedding_op.h"
#include "ulp/runtime/ops/gather_op.h"
#include "ulp/runtime/ops/grid_sample_op.h"
#include "ulp/runtime/ops/group_norm_op.h"
#include "ulp/runtime/ops/layer_norm_op.h"
#include "ulp/runtime/ops/matmul_op.h"
#include "ulp/runtime/ops/move_batch_op.h"
#include "ulp/runtime/ops/move_op.h"
#include "ulp/runtime/ops/pad_op.h"
#include "ulp/runtime/ops/pointwise_op.h"
#include "ulp/runtime/ops/pool_op.h"
#include "ulp/runtime/ops/recurrent_op.h"
#include "ulp/runtime/ops/reduce_op.h"
#include "ulp/runtime/ops/regroup_op.h"
#include "ulp/runtime/ops/resize_op.h"
#include "ulp/runtime/ops/scatter_op.h"
#include "ulp/runtime/ops/select_op.h"
#include "ulp/runtime/ops/slice_op.h"
#include "ulp/runtime/ops/sort_op.h"
#include "ulp/runtime/ops/token_mask_op.h"

// X(name, attributes):
//   conv             x[, residual]; constants: weight, [bias], [weight_scale]
//   linear           the same over [rows, features]
//   add              x, y, or x and the constant `addend` of one item's shape
//   relu             any activation by itself
//   max_pool         x
//   avg_pool         x
//   global_avg_pool  x -> [N, C, 1, 1]
//   flatten          x -> [N, rest] in logical (NCHW) order
//   softmax          over the last axis, or its logarithm
//   concat           x, y, ... side by side along `axis`; 0: the channels (the last axis of what is no image)
//   slice            channels [begin, begin + length) of x
//   channel_shuffle  channel g * (C / groups) + i of x becomes channel i * groups + g
//   convert          change of layout and / or type: f32 <-> bf16, quantize f32 -> u8, dequantize u8 -> f32,
//                    u8 -> u8
//   select           x[:, begin]: one index of dimension 1, which falls away
//   layer_norm       x; constants: [weight], [bias], over the last axis
//   embedding        ids; constants: weight [rows, width] -> [..., width]
//   token_mask       ids -> 0, or -infinity where the id is `token`
//   attention        q, k, v[, mask]: scaled dot-product attention of `heads` heads, which share `kv_heads` of keys and
//                    values, over those of earlier runs, too, where it keeps them (`kept`)
//   dynamic_linear   x[, residual]; constants: weight i8, weight_scale, [bias]; quantizes x as it runs
//   lstm             x[, h, c] -> h at every step of time; constants: weight_ih, weight_hh, f32, bf16 or i8 with
//                    weight_ih_scale and weight_hh_scale, [bias_ih, bias_hh]
//   gru              x[, h] -> the same
//   token_mean       x[, ids] -> the mean over dimension 1, without the steps whose id is `token`
//   depth_to_space   parts of the channels become the pixels of a window of `stride` (kernels/image/layout.h)
//   resize_nearest   x -> [N, C, size_h, size_w]
//   resize_bilinear  the same, interpolated
//   resize_bicubic   the same, interpolated by cubic curves; f32 or bf16
//   grid_sample      x, grid [N, size_h, size_w, 2] of places in [-1, 1] -> [N, C, size_h, size_w]; f32
//   unsqueeze        [N, C, L] -> [N, C, 1, L]
//   squeeze          [N, C, 1, L] -> [N, C, L]
//   group_norm       x [N, C, ...]; constants: [weight], [bias]; over each of `groups` groups of channels
//   pointwise        x0, x1, ...; constants: c0, c1 ...: a program of arithmetic (pointwise_op.h)
//   move             a strided copy of each item (move_op.h); costs nothing where the order stays as it is
//   move_batch       the batch goes to the first dimension, or from it to another
//   regroup          dimensions beside the batch become rows of it (TensorInfo::times), or such rows a dimension again;
//                    costs nothing
//   pad              x with a border of a number or of its own elements, or with less of them
//   constant         x, for its batch alone; constants: value -> the value for every item, or `rows` of it from the
//                    context's position on
//   reduce           sums, extremes, norms and the like of x over `dims`
//   cumsum           sums of x along `dim` up to each element; f32
//   matmul           a, b, or one of them and the other as constant `a` or `b` of one item's shape
//   gather           x, ids, or x and the constant `ids` for every item: rows along `dim`, whose sizes the ids' take the
//                    place of, or an element for each id
//   scatter          x, ids[, source]: x with `value` or the source's elements where the ids say along `dim`, or with
//                    their sum, product or extreme
//   sort             x in order along `dim`, the first `kept` of it, or where those stood in x (i64)
//   binarize         x -> the signs of its channels as bits; constants: [threshold], [flip]
//   binary_conv      x[, residual]: a convolution of numbers that are +1 or -1; constants: weight, and scale, [bias] for
//                    results in f32, or threshold, [flip] for bits
//   binary_linear    the same over rows
//
// Types: conv and linear take x f32 with an f32 weight, output f32 or bf16; x bf16 with a bf16 weight (bias f32), output
// bf16 or f32; x u8 with an i8 weight, `weight_scale` f32[O] and bias i32[O] of scale x.scale * weight_scale[c], output
// u8 or f32. A residual has the output's shape and layout, and is f32, bf16 or u8. Images (4-d) are nhwc inside, and so
// may be volumes (5-d), of which conv, pooling and resize take each slice as an image; linear takes any rank >= 2
// and works on the last dimension. relu, max_pool, flatten, slice, channel_shuffle, depth_to_space, resize,
// squeeze and unsqueeze keep type, scale and zero point; average pooling keeps the type; add and concat take
// tensors of the output's type, each u8 with its own scale; softmax takes and gives f32 or bf16. convert goes
// from or to f32, or from one u8 quantizer to another, and may change the layout. select keeps type, scale
// and zero point. Where the input is f32, linear's weight may be codes
// of 8 or 4 bits with scales, output f32, and so may embedding's table (coded_matrix.h); others are f32 or bf16, as the
// result. Ids are i32 or i64. move, concat,
// constant and gather take them as they take numbers; convert makes them of whole numbers in f32. gather, scatter
// and sort work in plain order and keep type, scale and zero point; what is added to, or joined otherwise, is f32.
// layer_norm, group_norm,
// reduce, matmul, attention and token_mean compute in f32 and give f32, bf16 or u8, places of extremes f32;
// layer_norm, group_norm and reduce take those types, the others f32 or bf16. relu with a curve, dynamic_linear, lstm
// and gru are f32 on both sides. Of attention q and the result are
// [N, queries, heads * depth], k and v [N, keys, heads * depth], the mask, added to the scores and f32, [N, keys]. lstm
// and gru are one direction of one layer: x [N, steps, features] -> [N, steps, hidden], weight_ih [gates
// * hidden, features], weight_hh [gates * hidden, hidden], both biases [gates * hidden] in PyTorch's order of
// gates (i, f, g, o; r, z, n), h and c [N, hidden] before the first step, zero where they are not given; i8 weights are
// multiplied as in dynamic_linear. token_mean: x [N, steps, features], ids [N, steps] -> [N, features], zeros where every
// id is `token`. pointwise: inputs of f32, bf16, u8, i32 or i64 in any layout and f32 constants, whose shapes
// broadcast; computed in f32; output f32, bf16 or u8. Bits are u8 of scale 1 and zero point 0, ceil(C / 8) bytes for C
// channels: bit c % 8 of byte c / 8 is 1 for -1, those behind the last channel are 0. binarize takes f32 images or
// volumes, or rows of the last dimension of what is plain; threshold f32 [C] without NaN, flip u8 [ceil(C / 8)]
// (kernels/binary/pack_signs.h). binary_conv takes bits of images or volumes that hold `channels` channels, weight u8 [O,
// kernel_h, kernel_w, ceil(C / 8)]; scale f32 [O] or [O, out_h, out_w] and bias f32 [O] give f32, with a residual f32 like
// it; threshold i32 [O] and flip u8 [ceil(O / 8)] give bits (kernels/binary/binary_conv.h). binary_linear takes plain bits,
// weight u8 [O, ceil(C / 8)] and scale f32 [O]. Unused bits of weights and flips count for nothing.
#define ULP_OPS(X)                           \
  X(conv, ConvAttributes)                    \
  X(linear, ActivationAttributes)            \
  X(add, ActivationAttributes)               \
  X(relu, ActivationAttributes)              \
  X(max_pool, PoolAttributes)                \
  X(avg_pool, PoolAttributes)                \
  X(global_avg_pool, NoAttributes)           \
  X(flatten, NoAttributes)                   \
  X(softmax, SoftmaxAttributes)              \
  X(concat, ConcatAttributes)                \
  X(slice, SliceAttributes)                  \
  X(channel_shuffle, ShuffleAttributes)      \
  X(convert, NoAttributes)                   \
  X(select, SelectAttributes)                \
  X(layer_norm, LayerNormAttributes)         \
  X(embedding, EmbeddingAttributes)          \
  X(token_mask, TokenAttributes)             \
  X(attention, AttentionAttributes)          \
  X(dynamic_linear, DynamicLinearAttributes) \
  X(lstm, RecurrentAttributes)               \
  X(gru, RecurrentAttributes)                \
  X(token_mean, TokenAttributes)             \
  X(depth_to_space, DepthToSpaceAttributes)  \
  X(resize_nearest, NearestAttributes)       \
  X(resize_bilinear, BilinearAttributes)     \
  X(resize_bicubic, BilinearAttributes)      \
  X(grid_sample, GridSampleAttributes)       \
  X(unsqueeze, NoAttributes)                 \
  X(squeeze, NoAttributes)                   \
  X(group_norm, GroupNormAttributes)         \
  X(pointwise, PointwiseAttributes)          \
  X(move, MoveAttributes)                    \
  X(move_batch, MoveBatchAttributes)         \
  X(regroup, RegroupAttributes)              \
  X(pad, PadAttributes)                      \
  X(constant, ConstantAttributes)            \
  X(reduce, ReduceAttributes)                \
  X(cumsum, CumulativeAttributes)            \
  X(matmul, MatmulAttributes)                \
  X(gather, GatherAttributes)                \
  X(scatter, ScatterAttributes)              \
  X(sort, SortAttributes)                    \
  X(binarize, NoAttributes)                  \
  X(binary_conv, BinaryConvAttributes)       \
  X(binary_linear, BinaryLinearAttributes)

namespace ulp::runtime {

#define ULP_ENUMERATOR(name, ...) name,
/// The ops of the list by name.
enum class Op : uint8_t { ULP_OPS(ULP_ENUMERATOR) };
#undef ULP_ENUMERATOR

#define ULP_ITEM(name, ...) Op::name,
/// Every op, in the order of the list.
inline constexpr auto kOps = std::to_array<Op>({ULP_OPS(ULP_ITEM)});
#undef ULP_ITEM

/// False for a number that is no enumerator.
constexpr bool is_known(Op op) {
  return static_cast<size_t>(op) < kOps.size();
}
/// The word in engine files; "unknown" for a number that is no enumerator.
ULP_API const char* to_string(Op op);

namespace detail {

/// A variant of the types without those named before.
template <typename Variant, typename... Types>
struct Distinct;
template <typename... Held>
struct Distinct<std::variant<Held...>> {
  using type = std::variant<Held...>;
};
template <typename... Held, typename Type, typename... Rest>
struct Distinct<std::variant<Held...>, Type, Rest...>
    : std::conditional_t<(std::is_same_v<Type, Held> || ...), Distinct<std::variant<Held...>, Rest...>,
                         Distinct<std::variant<Held..., Type>, Rest...>> {};

template <typename Type, typename Variant>
inline constexpr bool holds = false;
template <typename Type, typename... Held>
inline constexpr bool holds<Type, std::variant<Held...>> = (std::is_same_v<Type, Held> || ...);

}  // namespace detail

#define ULP_TYPE(name, attributes) , attributes
/// One of the types of attributes that ops have.
using AnyAttributes = detail::Distinct<std::variant<NoAttributes> ULP_OPS(ULP_TYPE)>::type;
#undef ULP_TYPE

/// True for a type of attributes that an op of the list has.
template <typename Type>
concept OpAttributes = detail::holds<Type, AnyAttributes>;

/// The attributes of a step: those that its op has in the list. A variant, whose copies are made in one file: made anew
/// in every file that includes this one, they would be much of what it costs to compile.
struct ULP_API Attributes : AnyAttributes {
  Attributes();
  template <OpAttributes Own>
  Attributes(Own own) : AnyAttributes(std::move(own)) {}  // NOLINT: implicit on purpose
  Attributes(const Attributes& other);
  Attributes(Attributes&& other) noexcept;
  Attributes& operator=(const Attributes& other);
  Attributes& operator=(Attributes&& other) noexcept;
  ~Attributes();
  bool operator==(const Attributes& other) const;
};

/// The op's attributes at their defaults; NoAttributes for a number that is no enumerator.
ULP_API Attributes default_attributes(Op op);

}  // namespace ulp::runtime
