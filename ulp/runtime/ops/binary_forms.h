// The form in which a binary layer runs: over bits, or over bytes where those are measured to be faster.
#pragma once

#include "ulp/kernels/binary/binary_conv.h"
#include "ulp/runtime/ops/kernel_variants.h"

namespace ulp::runtime {

/// make_binary_conv(), or make_binary_as_bytes() where `measure` says so and that is the faster one by more than a
/// timing may be off: both run on synthetic input, as many of `items` as take neither long nor more than
/// rules.measured->most_bytes(), on the calling thread. The note has both times. The results are the same bits.
ULP_API LayerForm make_binary_form(const kernels::BinaryConvConfig& config,
                                   const kernels::BinaryConvWeights& weights, kernels::Isa isa,
                                   const PackRules& rules, const ItemRange& items, bool measure);

/// Whether a machine may multiply bytes faster than it counts bits: one with AMX.
bool doubts_bits(kernels::Isa isa);

}  // namespace ulp::runtime
