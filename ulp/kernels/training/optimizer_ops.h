// The table of optimizer loops that each instruction set fills in. Plain data, see float_bits.h for why.
#pragma once

#include <cstdint>

#include "ulp/formats/data_type.h"
#include "ulp/formats/random_bits.h"

namespace ulp::kernels {

/// How a parameter is kept, and what `master` of its OptimizerTensor points to.
enum class WeightStore : uint8_t {
  f32,              ///< an fp32 parameter, no master
  bf16_master,      ///< master: fp32; the parameter is its nearest bf16 (ties to even)
  f16_master,       ///< master: fp32; the parameter is its nearest fp16 (ties to even)
  bf16_split,       ///< master: the low 16 bits of an fp32 weight; the parameter is its nearest bf16, ties
                    ///< away from zero: the fp32 bits are (parameter << 16) + int16(master)
  bf16_stochastic,  ///< no master; up or down with the probability that makes the mean exact
  bf16_kahan,       ///< master: bf16, what the parameter's rounding lost; the weight is their sum
};
constexpr int kWeightStores = 6;
constexpr DataType parameter_type(WeightStore store) {
  if (store == WeightStore::f32) return DataType::f32;
  return store == WeightStore::f16_master ? DataType::f16 : DataType::bf16;
}

/// How `first` and `second` of an OptimizerTensor are kept between steps; the arithmetic on them is fp32.
enum class MomentStore : uint8_t {
  f32,
  bf16,  ///< up or down with the probability that makes the mean exact: to the nearest, an average that moves
         ///< by 1 / 1000 of itself a step would never move
  int8,  ///< blocks of 256: a byte an element, and absmax in fp32 (moment_maps.h); to the nearest, and to the
         ///< least negative value instead of 0 where a negative element would lose its sign, to the least one
         ///< above 0 where a square would become 0
  int4,  ///< blocks of 128: two elements a byte, the even one in the lower bits, and absmax; to the nearest
};
/// Elements that have an absmax in common; 0 where every element stands for itself.
constexpr int64_t moment_block(MomentStore store) {
  return store == MomentStore::int8 ? 256 : store == MomentStore::int4 ? 128 : 0;
}
/// Bytes of so many elements, without their absmax.
constexpr int64_t moment_bytes(MomentStore store, int64_t elements) {
  switch (store) {
    case MomentStore::f32:
      return 4 * elements;
    case MomentStore::bf16:
      return 2 * elements;
    case MomentStore::int8:
      return elements;
    case MomentStore::int4:
      break;
  }
  return (elements + 1) / 2;
}

/// Moments that are no squares, and those that are.
enum class MomentKind : uint8_t { mean, square };

/// The code of int8 and int4 moments that are 0, and the least one where there is none (squares in int4).
constexpr uint8_t zero_code(MomentStore store, MomentKind kind) {
  if (kind == MomentKind::square) return 0;
  return store == MomentStore::int8 ? 127 : 7;
}

/// The update of one element, g being the finished gradient and p the weight; a product that is added to is
/// not rounded (fma).
enum class UpdateKind : uint8_t {
  sgd,           ///< g += weight_decay p; p += -lr g
  sgd_momentum,  ///< g as above; m = first_step ? g : momentum m + one_minus_dampening g;
                 ///< p += -lr (nesterov ? g + momentum m : m)
  adam,   ///< g += weight_decay p; m = beta1 m + one_minus_beta1 g; v = beta2 v + (one_minus_beta2 g) g;
          ///< p += (-step_size m) / (sqrt(v) / sqrt_correction2 + eps)
  adamw,  ///< p *= decay; then as adam, without its first statement
};
constexpr int kUpdateKinds = 4;

/// The numbers of one step, already rounded to fp32.
struct UpdateStep {
  UpdateKind kind = UpdateKind::sgd;
  bool nesterov = false, first_step = false;
  float negative_lr = 0, momentum = 0, one_minus_dampening = 1, weight_decay = 0;
  float beta1 = 0, one_minus_beta1 = 1, beta2 = 0, one_minus_beta2 = 1;
  float decay = 1, negative_step_size = 0, sqrt_correction2 = 1, eps = 0;
};

/// Flips the seed of a RandomKey for the moments: their random words are not those of the weights.
constexpr uint64_t kMomentSeed = 0x6d6f6d656e747321;

/// The 16 bits that round the stochastic parameter of element `index`: half a word, so that one word serves
/// two elements 64 apart.
static inline uint32_t random_half(formats::RandomKey key, uint64_t index) {
  const uint64_t word = index / 128 * 64 + index % 64;
  return formats::random_bits(key, word) >> (index / 64 % 2 * 16) & 0xffffU;
}

/// A run of elements of one tensor; `begin` is where its random numbers start, a multiple of 128.
struct UpdateRun {
  const void* gradient;
  DataType gradient_type;  ///< f32, bf16 or f16
  void* parameter;
  WeightStore store;
  void* master;
  void* first;
  void* second;
  float* first_absmax;
  float* second_absmax;
  MomentStore moments;
  bool stream_copies;
  int64_t size, begin;
  float inverse_scale, clip;
  const UpdateStep* step;
  formats::RandomKey random;
  const uint8_t* mask;  ///< of this run's elements, as OptimizerTensor has it; then nothing is streamed
};

/// n moments of int8 or int4 to fp32 and back, from the begin of a block on. A block with a number that is
/// not finite becomes NaN as a whole, one of subnormal numbers 0; squares above 0 stay above it.
struct MomentBlocks {
  void (*load)(const uint8_t* codes, const float* absmax, int64_t n, float* wide);
  void (*store)(const float* wide, int64_t n, uint8_t* codes, float* absmax);
};

struct OptimizerOps {
  struct {
    double (*f32)(const void* gradient, int64_t n);
    double (*bf16)(const void* gradient, int64_t n);
    double (*f16)(const void* gradient, int64_t n);
  } square_sum;
  void (*update[kUpdateKinds])(const UpdateRun& run);
  const MomentBlocks (*blocks)[2];  ///< of int8 and int4; each for elements of both signs, and of squares
};

extern const OptimizerOps kOptimizerOpsPortable, kOptimizerOpsAvx2, kOptimizerOpsAvx512;

}  // namespace ulp::kernels
