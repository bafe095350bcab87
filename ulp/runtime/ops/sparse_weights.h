// What an engine does with weights of zero.
#pragma once

#include <array>
#include <cstdint>

#include "ulp/base/enum_names.h"

namespace ulp::runtime {

/// Linear layers, and 1x1 convolutions without stride and groups, can leave out blocks of weights that are all zero (16
/// outputs by 4 inputs in 8 bits, by 1 input in f32 and bf16), and for few rows and 8 bits zeros that lie anywhere. The
/// results are those of the dense layer, bit for bit on finite inputs but for the sign of a zero.
enum class SparseWeights : uint8_t {
  measure,  ///< a layer with enough zeros is timed both ways as its constants are packed, and runs the faster one
  never,
  always  ///< wherever there is something to leave out, faster or not: the same kernels in every engine
};

}  // namespace ulp::runtime

namespace ulp {
template <>
struct EnumNames<runtime::SparseWeights> {
  static constexpr auto list =
      std::to_array<Word<runtime::SparseWeights>>({{runtime::SparseWeights::measure, "measure"},
                                                   {runtime::SparseWeights::never, "never"},
                                                   {runtime::SparseWeights::always, "always"}});
};
}  // namespace ulp
