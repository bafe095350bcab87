// The training precisions by name, as command lines and recipes spell them, and how to put a model into one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <concepts>
#include <cstddef>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/base/export.h"

namespace torch::nn {
class Module;
}

namespace ulp::amp {

/// Which lists say what autocast casts.
enum class OpLists : uint8_t {
  libtorch,  ///< LibTorch's own for the device; its CPU list leaves softmax, layer_norm, exp, sum ... out
  cuda_like  ///< OpPolicy::cuda_like() on every device
};

/// How to train in a precision. Where parameters are stored narrower than fp32 the optimizer must handle it:
/// with fp32 masters (FusedOptimizer) where `master_weights` says so.
struct Precision {
  std::string_view name;                                ///< "fp32", "bf16", "O2:bf16" ...
  std::optional<c10::ScalarType> autocast_dtype = {};   ///< what Autocast runs in; nothing: no Autocast
  bool needs_scaler = false;                            ///< gradients underflow without a GradScaler
  OpLists op_lists = OpLists::libtorch;                 ///< with autocast_dtype
  std::optional<c10::ScalarType> parameter_dtype = {};  ///< parameters and inputs; nothing: as they are, fp32
  bool batch_norm_fp32 = false;  ///< with parameter_dtype: batch norms keep fp32 parameters and statistics
  bool master_weights = false;   ///< with parameter_dtype: the optimizer should keep fp32 masters
  bool tf32 = false;             ///< fp32 products on a GPU may be computed in tf32
  bool fp8 = false;   ///< products of layers in fp8 or fp4, by Fp8Recipe::named(name); the rest as above
  bool int8 = false;  ///< products of linear layers in int8, by Int8Recipe::named(name); the rest as above
  std::string_view summary = {};  ///< one line for help texts
};

/// | name | computes in | parameters | scaler |
/// |---|---|---|---|
/// | fp32, O0 | fp32 | fp32 | no |
/// | tf32 | fp32, GPU products in tf32 | fp32 | no |
/// | bf16, mixed_bfloat16 | autocast, LibTorch's lists | fp32 | no |
/// | fp16, mixed_float16 | autocast, LibTorch's lists | fp32 | yes |
/// | O1, O1:bf16 | autocast, the CUDA lists on every device | fp32 | fp16 only |
/// | O2, O2:bf16 | fp16 / bf16 | fp16 / bf16, batch norms fp32, fp32 masters | fp16 only |
/// | O3, O3:bf16 | fp16 / bf16 | fp16 / bf16, all of them, no masters | no |
///
/// | fp8:delayed, fp8:current, fp8:rowwise, fp8:block, mxfp8, nvfp4 | products of layers in 8 bits (nvfp4: 4), the rest as bf16 | fp32 | no |
///
/// | int8, int8:switchback, int8:rowwise, int8:jetfire | products of linear layers in int8, the rest as bf16 | fp32 | no |
///
/// mixed_* are Keras's names and O0 to O3 Apex's levels. Keras's policies per layer are apply_policy().
ULP_API std::span<const Precision> precisions();

/// The precision of that name. An unknown name is an error that lists the known ones.
ULP_API const Precision& find_precision(std::string_view name);

/// A precision of the table, chosen by its name. It always names one of the table.
class ULP_API PrecisionName {
 public:
  /// fp32.
  PrecisionName() = default;
  /// Throws as find_precision() does.
  PrecisionName(std::string_view name);  // NOLINT: options are written .precision = "bf16"
  template <std::convertible_to<std::string_view> Text>
  PrecisionName(const Text& name) : PrecisionName(std::string_view(name)) {}  // NOLINT: the same

  std::string name() const { return std::string((*this)->name); }
  const Precision& operator*() const { return precisions()[index_]; }
  const Precision* operator->() const { return &**this; }
  bool operator==(const PrecisionName&) const = default;

  /// The place in precisions(), and back (TableChoice of base/fields.h).
  size_t index() const { return index_; }
  static PrecisionName at(size_t index);
  /// Names and summaries of the table.
  static std::span<const char* const> choices();
  static std::span<const char* const> choice_help();

 private:
  size_t index_ = 0;
};
/// Its name.
ULP_API std::ostream& operator<<(std::ostream& out, const PrecisionName& precision);

/// Throws Error when the device cannot compute in this precision: devices other than cpu and cuda, cuda
/// without a GPU, tf32 on a cpu.
ULP_API void check_device(const Precision& precision, c10::DeviceType device);

/// Casts parameters and floating buffers in place where the precision wants it; everything else is left
/// alone, fp64 and the state of fp8 layers too. Parameters stay the same tensors, so an optimizer that holds them
/// goes on holding them; their gradients are dropped. A batch norm of a GraphModule is what an aten::batch_norm node
/// reads, others are torch::nn's modules. What is a libtorch::KeepsFloat stays as it is. Layers do not become fp8
/// layers by it: to_fp8() makes a model of them. It casts down only: there is no way back to fp32.
ULP_API void apply_precision(torch::nn::Module& module, const Precision& precision);

/// A guard that computes in this precision for as long as it lives: autocast with its dtype and lists, or,
/// for a precision without autocast, an opt-out from the autocast around it. Throws as check_device().
///
///   auto guard = ulp::amp::autocast_for(precision, torch::kCPU);
ULP_API Autocast autocast_for(const Precision& precision, c10::DeviceType device);

/// An input as a model in this precision takes it: fp32 becomes parameter_dtype, where there is one.
ULP_API at::Tensor cast_input(const Precision& precision, const at::Tensor& input);

/// Lets cuBLAS and cuDNN compute fp32 products and convolutions in tf32, or forbids it, for the whole
/// process. Returns whether both were allowed before. A CPU computes fp32 in fp32 whatever this says, so that
/// allowing it without a GPU is an error.
ULP_API bool allow_tf32(bool allow);

}  // namespace ulp::amp
