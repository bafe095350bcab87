// A plan: the static list of steps that an engine runs, with its constants; what an engine file holds.
//
// A plan names no instruction set: constants are in logical order (conv weights [O][I/groups][kh][kw], linear
// weights [O][I]); packing for the machine found happens when an Engine is made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::runtime {

/// What the elements of a tensor are.
enum class DataType : uint8_t { f32, bf16, u8, i8, i32, i64 };
/// The word in engine files.
ULP_API const char* to_string(DataType type);
/// Bytes of one element.
ULP_API size_t element_size(DataType type);

/// How a tensor's bytes lie. `shape` is always in logical order (N, C, H, W for images); nhwc applies to 4-d
/// tensors.
enum class Layout : uint8_t { plain, nhwc };
/// The word in engine files.
ULP_API const char* to_string(Layout layout);

/// The batch dimension: the first one, free until run().
inline constexpr int64_t kBatch = -1;

/// One value of the plan: an input, an output or an intermediate.
struct TensorInfo {
  std::string name{};
  DataType type = DataType::f32;
  std::vector<int64_t> shape{};  ///< dimension 0 may be kBatch
  Layout layout = Layout::plain;
  float scale = 1.0F;  ///< u8: real = (q - zero_point) * scale
  int32_t zero_point = 0;
};

/// Elements and dense bytes of a tensor when the batch dimension is `batch`.
ULP_API int64_t element_count(const TensorInfo& tensor, int64_t batch);
/// Dense bytes of such a tensor.
ULP_API size_t byte_count(const TensorInfo& tensor, int64_t batch);

/// A tensor stored with the plan.
struct Constant {
  DataType type = DataType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

/// What a step computes.
enum class Op : uint8_t {
  conv,             // inputs: x[, residual]; constants: weight, [bias], [weight_scale]
  linear,           // the same over [rows, features]
  add,              // x, y, or x and the constant `addend` of one item's shape
  relu,             // any activation by itself
  max_pool,         // x
  avg_pool,         // x
  global_avg_pool,  // x -> [N, C, 1, 1]
  flatten,          // x -> [N, rest] in logical (NCHW) order
  softmax,          // over the last axis
  concat,           // x, y, ... side by side along the channels (the last axis of what is no image)
  slice,            // channels [begin, begin + length) of x
  channel_shuffle,  // channel g * (C / groups) + i of x becomes channel i * groups + g
  convert,  // change of layout and / or type: f32 <-> bf16, quantize f32 -> u8, dequantize u8 -> f32, u8 ->
            // u8
  select,   // x[:, begin]: one index of dimension 1, which falls away
  layer_norm,      // x; constants: [weight], [bias], over the last axis
  embedding,       // ids; constants: weight [rows, width] -> [..., width]
  token_mask,      // ids -> 0, or -infinity where the id is `token`
  attention,       // q, k, v[, mask]: scaled dot-product attention of `heads` heads
  dynamic_linear,  // x[, residual]; constants: weight i8, weight_scale, [bias]; quantizes x as it runs
  lstm,  // x -> h at every step of time; constants: weight_ih, weight_hh, f32 or i8 with weight_ih_scale and
         // weight_hh_scale, [bias_ih, bias_hh]
  gru,   // the same
  token_mean,       // x[, ids] -> the mean over dimension 1, without the steps whose id is `token`
  depth_to_space,   // parts of the channels become the pixels of a window of `stride` (image/layout.h)
  resize_nearest,   // x -> [N, C, size_h, size_w]
  resize_bilinear,  // the same, interpolated
  unsqueeze,        // [N, C, L] -> [N, C, 1, L]
  squeeze           // [N, C, 1, L] -> [N, C, L]
};
/// The word in engine files.
ULP_API const char* to_string(Op op);

/// gelu: x Phi(x), by erf; gelu_tanh: its approximation by tanh.
enum class Activation : uint8_t { none, relu, relu6, gelu, gelu_tanh, tanh };
/// The word in engine files.
ULP_API const char* to_string(Activation activation);

/// Window of a convolution or a pooling.
struct Window {
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t pad_h = 0, pad_w = 0;
  int64_t dilation_h = 1, dilation_w = 1;
  bool ceil_mode = false;         ///< pooling: round the output size up
  bool count_include_pad = true;  ///< average pooling

  bool operator==(const Window&) const = default;
};

/// One step. Fields that an op does not use keep their defaults and are not written to the file.
struct Step {
  Op op = Op::relu;
  std::string name{};             ///< the node or module it came from, for messages and profiles
  std::vector<int32_t> inputs{};  ///< indices into Plan::tensors
  int32_t output = -1;
  std::map<std::string, std::string>
      constants{};  ///< role ("weight", "bias", "weight_scale", ...) -> name in Plan::constants
  Window window{};
  int64_t groups = 1;
  Activation activation = Activation::none;  ///< conv, linear, add: after the sum; relu: the op itself
  int64_t begin = 0, length = 0;             ///< slice; begin: select
  int64_t heads = 1;                         ///< attention
  float scale = 1.0F;                        ///< attention: of the products of queries and keys
  bool causal = false;                       ///< attention: query i sees keys 0 to i
  float epsilon = 0.0F;                      ///< layer_norm
  int64_t token = 0;                         ///< token_mask, token_mean
  int64_t size_h = 0, size_w = 0;            ///< resize, depth_to_space: of the result
  bool align_corners = false;                ///< resize_bilinear
  bool per_tensor = false;  ///< dynamic_linear, lstm, gru: one quantizer for the whole batch, else one a row
  bool reverse = false;     ///< lstm, gru: from the last step of time to the first
};

/// Tensors, steps in order of execution, constants, and which tensors the caller sees.
///
/// Types: conv and linear take x f32 with an f32 weight; x bf16 with a bf16 weight (bias f32); x u8 with an
/// i8 weight, `weight_scale` f32[O] and bias i32[O] of scale x.scale * weight_scale[c], output u8 or f32. A
/// residual has the output's shape, layout and type. Images (4-d) are nhwc inside; linear takes any rank >= 2
/// and works on the last dimension. relu, max_pool, flatten, slice, channel_shuffle, depth_to_space, resize,
/// squeeze and unsqueeze keep type, scale and zero point; average pooling keeps the type; add and concat take
/// tensors of the output's type, each u8 with its own scale; softmax takes and gives f32 or bf16. convert
/// goes from or to f32, or from one u8 quantizer to another, and may change the layout. select keeps type,
/// scale and zero point. gelu and tanh give f32. Where the input is f32, linear's weight may be codes of 8 or
/// 4 bits with scales, and so may embedding's table (coded_matrix.h). Ids are i32 or i64 inputs of the plan.
/// layer_norm, embedding, attention and dynamic_linear compute in f32: q and the result are [N, queries,
/// heads * depth], k and v [N, keys, heads * depth], the mask, added to the scores, [N, keys]. So do lstm and
/// gru, one direction of one layer: x [N, steps, features] -> [N, steps, hidden], weight_ih [gates * hidden,
/// features], weight_hh [gates * hidden, hidden], both biases [gates * hidden] in PyTorch's order of gates
/// (i, f, g, o; r, z, n), h and c zero before the first step; i8 weights are multiplied as in dynamic_linear.
/// token_mean: x f32 [N, steps, features], ids [N, steps] -> [N, features], zeros where every id is `token`.
struct ULP_API Plan {
  std::vector<TensorInfo> tensors;
  std::vector<Step> steps;
  std::map<std::string, Constant> constants;
  std::vector<int32_t> inputs, outputs;
  std::map<std::string, std::string> metadata;  ///< free text: source model, recipe, versions

  /// Throws ulp::Error naming the step when a type, shape, index or constant is not as the ops above require.
  void verify() const;
  /// The shape `step` gives from its inputs and constants; its output field is not read. Throws as verify()
  /// does.
  std::vector<int64_t> output_shape(const Step& step) const;
  /// Writes an engine file (safetensors container, plan as JSON in its metadata), atomically.
  void save(const std::filesystem::path& path) const;
  /// Reads and verifies an engine file. Throws FileError for a damaged, foreign, hostile or newer file.
  static Plan load(const std::filesystem::path& path);
};

/// The version written into engine files; a file with a larger one is refused.
inline constexpr int kEngineFileVersion = 1;

}  // namespace ulp::runtime
