// The two passes of an optimizer step over many tensors at once: the norm of the gradients, and the update.
//
// Everything is computed in fp32, in the order of LibTorch's C++ optimizers
// (torch/csrc/api/src/optim/{sgd,adam,adamw}.cpp) and with multiply-adds fused where its loops fuse them:
// every instruction set and every number of threads gives the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/base/parallel.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/kernels/training/optimizer_ops.h"

namespace ulp::kernels {

/// One parameter with its gradient and its state: flat arrays of `size` elements in the same order.
struct OptimizerTensor {
  int64_t size = 0;
  const void* gradient = nullptr;
  DataType gradient_type = DataType::f32;  ///< or bf16, f16
  void* parameter = nullptr;
  WeightStore store = WeightStore::f32;
  void* master = nullptr;      ///< what WeightStore says
  bool stream_copies = false;  ///< writes parameters that are copies of their masters past the caches: for
                               ///< models that are larger than those
  void* first = nullptr;       ///< SGD: momentum buffer, null without momentum; Adam: exp_avg
  void* second = nullptr;      ///< Adam: exp_avg_sq
  MomentStore moments = MomentStore::f32;
  float* first_absmax =
      nullptr;  ///< int8, int4: one for each moment_block() elements, the last block may be short
  float* second_absmax = nullptr;
  const UpdateStep* step = nullptr;
  formats::RandomKey random;  ///< of stochastic rounding; a key of its own for each tensor and step
  /// The arrays are a part of larger ones, from this element on: their random numbers are those. A multiple
  /// of 128.
  int64_t random_begin = 0;
  /// A bit an element in the order of the arrays, element i being bit i % 8 of byte i / 8; null: all are
  /// trained. An element whose bit is 0 keeps the bits of its parameter and master, its state is set to zero
  /// (the least value of a second moment in int4), and its gradient counts nowhere.
  const uint8_t* mask = nullptr;
};

/// The sum of the squares of all gradients, in double: its root is the global norm, and it is inf or NaN
/// exactly when a gradient is. Throws ulp::Error for gradients of another type than f32, bf16 and f16.
ULP_API double gradient_square_sum(const std::vector<OptimizerTensor>& tensors, Isa isa,
                                   const Parallel& parallel);

/// Updates parameters, masters and state from gradient * inverse_scale * clip (two roundings); the gradients
/// are only read. Throws ulp::Error as gradient_square_sum() does.
ULP_API void update_parameters(const std::vector<OptimizerTensor>& tensors, float inverse_scale, float clip,
                               Isa isa, const Parallel& parallel);

/// Both passes without an allocation, for steps of a few microseconds: the same bits. Gradients are f32,
/// which is not checked, and have no masks in gradient_square_sum(). `sums` has room for gradient_chunks()
/// numbers; `parallel` may be null, and is asked where there is work for several threads.
ULP_API double gradient_square_sum(std::span<const OptimizerTensor> tensors, Isa isa,
                                   const Parallel* parallel, std::span<double> sums);
ULP_API void update_parameters(std::span<const OptimizerTensor> tensors, float inverse_scale, float clip,
                               Isa isa, const Parallel* parallel);
/// The parts of gradients that each have a sum of their own.
ULP_API int64_t gradient_chunks(std::span<const OptimizerTensor> tensors);

/// Moments of int8 or int4 as fp32 numbers: wide[i] for i < n, in every instruction set and on every number
/// of threads the same bits. Throws ulp::Error for another store.
ULP_API void load_moments(MomentStore store, MomentKind kind, const uint8_t* codes, const float* absmax,
                          int64_t n, float* wide, Isa isa, const Parallel& parallel);
/// And back: writes moment_bytes() codes, and an absmax a block. Squares are at least 0.
ULP_API void store_moments(MomentStore store, MomentKind kind, const float* wide, int64_t n, uint8_t* codes,
                           float* absmax, Isa isa, const Parallel& parallel);

}  // namespace ulp::kernels
