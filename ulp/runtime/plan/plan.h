// A plan: the static list of steps that an engine runs, with its constants; what an engine file holds.
//
// A plan names no instruction set: constants are in logical order (conv weights [O][I/groups][kh][kw], linear
// weights [O][I]); packing for the machine found happens when an Engine is made.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ulp/base/activation.h"
#include "ulp/base/dynamic_dimension.h"
#include "ulp/base/export.h"
#include "ulp/base/polynomial.h"
#include "ulp/formats/data_type.h"
#include "ulp/runtime/ops/list.h"

namespace ulp::runtime {

using ulp::Activation;
using ulp::DataType;
using ulp::to_string;

/// How a tensor's bytes lie. `shape` is always in logical order (N, C, H, W for images); nhwc, the channels
/// innermost, applies to images and to volumes (N, C, D, H, W).
enum class Layout : uint8_t { plain, nhwc };
/// How many layouts there are.
inline constexpr int kLayoutCount = 2;
/// "plain", "nhwc".
ULP_API const char* to_string(Layout layout);

/// The batch dimension, free until run(): the first one, and of what callers give and get, another where their model has
/// it there.
inline constexpr int64_t kBatch = -1;

/// One value of the plan: an input, an output or an intermediate.
struct TensorInfo {
  std::string name{};
  DataType type = DataType::f32;
  std::vector<int64_t> shape{};  ///< one dimension may be kBatch
  Layout layout = Layout::plain;
  float scale = 1.0F;  ///< u8: real = (q - zero_point) * scale
  int32_t zero_point = 0;
  /// Rows of the batch's dimension for each item: its size is times * batch, as in the frames of films that
  /// are one batch of images. It is dimension 0, but for results of callers ([words, batch * time]).
  int64_t times = 1;
  /// Of these so many stand before the batch: the dimension is [outer, batch, times / outer] in one. Steps
  /// take and give tensors with 1; regroup makes others of what callers get.
  int64_t outer = 1;
};

/// Which dimension is the batch; nothing where all are fixed.
ULP_API std::optional<size_t> batch_dimension(const TensorInfo& tensor);
/// The sizes of a tensor when the batch dimension is `batch`. This and the next two throw ulp::Error
/// (out_of_memory) where 64 bits cannot hold the numbers.
ULP_API std::vector<int64_t> sizes_at(const TensorInfo& tensor, int64_t batch);
/// The batch of a tensor of these sizes: the largest one for which sizes_at() has no more rows, at least 1; 1
/// where all dimensions are fixed, or `sizes` has too few.
ULP_API int64_t batch_in(const TensorInfo& tensor, std::span<const int64_t> sizes);
/// Elements and dense bytes of a tensor when the batch dimension is `batch`.
ULP_API int64_t element_count(const TensorInfo& tensor, int64_t batch);
/// Dense bytes of such a tensor.
ULP_API size_t byte_count(const TensorInfo& tensor, int64_t batch);

/// Bytes that copies share until one of them changes.
class SharedBytes {
 public:
  SharedBytes() = default;
  SharedBytes(std::vector<std::byte> bytes)  // NOLINT: implicit on purpose
      : bytes_(std::make_shared<std::vector<std::byte>>(std::move(bytes))) {}

  size_t size() const { return bytes_ ? bytes_->size() : 0; }
  bool empty() const { return size() == 0; }
  const std::byte* data() const { return bytes_ ? bytes_->data() : nullptr; }
  /// To write to: what copies see stays as it is.
  std::byte* data() { return own().data(); }
  void resize(size_t size) { own().resize(size); }
  operator std::span<const std::byte>() const { return {data(), size()}; }  // NOLINT: implicit on purpose
  bool operator==(const SharedBytes& other) const {
    return bytes_ == other.bytes_ ||
           std::ranges::equal(std::span<const std::byte>(*this), std::span<const std::byte>(other));
  }

 private:
  std::vector<std::byte>& own() {
    if (!bytes_ || bytes_.use_count() > 1)
      bytes_ = bytes_ ? std::make_shared<std::vector<std::byte>>(*bytes_)
                      : std::make_shared<std::vector<std::byte>>();
    return *bytes_;
  }
  std::shared_ptr<std::vector<std::byte>> bytes_;
};

/// A tensor stored with the plan.
struct Constant {
  DataType type = DataType::f32;
  std::vector<int64_t> shape;
  SharedBytes bytes;
};

/// A number of the plan that follows the free dimensions.
struct SymbolicNumber {
  /// Where it stands in the plan as JSON (RFC 6901): "/tensors/3/shape/1", "/steps/7/window/kernel_w".
  std::string path;
  Polynomial value;  ///< of the free dimensions in their order
  int32_t word =
      -1;  ///< of a text (the program of a pointwise step): which of its words; -1: a number by itself
};

/// What a plan holds of its free dimensions. Its own numbers are those at the largest sizes.
struct SymbolicNumbers {
  std::vector<DynamicDimension> free;
  std::vector<SymbolicNumber> numbers;
  /// Constants of which the first elements along each dimension are used: by name how many, as many polynomials as the
  /// constant has dimensions. A constant that is not here is used whole.
  std::map<std::string, std::vector<Polynomial>> corners;
};

/// One step.
struct Step {
  Op op = Op::relu;
  std::string name{};             ///< the node or module it came from, for messages and profiles
  std::vector<int32_t> inputs{};  ///< indices into Plan::tensors
  int32_t output = -1;
  std::map<std::string, std::string>
      constants{};  ///< role ("weight", "bias", "weight_scale", ...) -> name in Plan::constants
  Attributes attributes = default_attributes(op);  ///< those of the op, as the list says

  /// The attributes by their type; throws ulp::Error where the step holds others.
  template <typename Own>
  Own& get() {
    return const_cast<Own&>(std::as_const(*this).get<Own>());
  }
  template <typename Own>
  const Own& get() const {
    if (const auto* own = std::get_if<Own>(&attributes)) return *own;
    refuse_get();
  }

 private:
  [[noreturn]] ULP_API void refuse_get() const;
};

/// "window.kernel_h=3, groups=2": the attributes that are not at their defaults; empty where all are.
ULP_API std::string attributes_text(const Attributes& attributes);

/// Tensors, steps in order of execution, constants, and which tensors the caller sees.
///
/// What each op takes and gives: ops/list.h.
struct ULP_API Plan {
  std::vector<TensorInfo> tensors;
  std::vector<Step> steps;
  std::map<std::string, Constant> constants;
  std::vector<int32_t> inputs, outputs;
  std::map<std::string, std::string> metadata;  ///< free text: source model, recipe, versions
  BatchRange batch_range = {};                  ///< batch sizes that the model computes
  SymbolicNumbers following = {};               ///< of a plan with free dimensions
  /// The free dimension along which the runs of a context continue each other (its size is how many rows a run adds), as a
  /// text that is written token by token; empty: each run stands alone.
  std::string continued{};

  /// Throws ulp::Error naming the step when a type, shape, index or constant is not as the ops above require.
  void verify() const;
  /// The shape `step` gives from its inputs and constants; its output field is not read. Throws as verify()
  /// does.
  std::vector<int64_t> output_shape(const Step& step) const;
  /// Writes an engine file (safetensors container, plan as JSON in its metadata), atomically.
  void save(const std::filesystem::path& path) const;
  /// Reads and verifies an engine file. Throws FileError for a damaged, foreign, hostile or newer file.
  static Plan load(const std::filesystem::path& path);
  /// The same of an engine file's bytes, which are not needed afterwards.
  static Plan load(std::span<const std::byte> file);
};

/// The largest version of engine files; a file with a larger one is refused. Plans without free dimensions are written as
/// version 1.
inline constexpr int kEngineFileVersion = 2;

}  // namespace ulp::runtime
