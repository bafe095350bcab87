// Chains of one instruction that depend on nothing but themselves. For files of one instruction set. Steps are
// written as assembly: of intrinsics GCC makes copies between the registers, and spills some of them.
#pragma once

#include "ulp/kernels/peak/peak_tables.h"

namespace ulp::kernels {
namespace {

/// Chain: a vector V, how many chains, start() of a chain, a step of it, and two chains joined.
template <typename Chain>
void run_chains(int64_t passes, void* sink) {
  using V = typename Chain::V;
  V sums[Chain::kChains];
#pragma GCC unroll 32
  for (int i = 0; i < Chain::kChains; ++i) sums[i] = Chain::start(i);
  const Chain chain;
  for (int64_t pass = 0; pass < passes; ++pass) {
#pragma GCC unroll 32
    for (int i = 0; i < Chain::kChains; ++i) sums[i] = chain.step(sums[i]);
  }
  V total = sums[0];
#pragma GCC unroll 32
  for (int i = 1; i < Chain::kChains; ++i) total = Chain::join(total, sums[i]);
  __builtin_memcpy(sink, &total, sizeof(total));
}

/// `per_step`: operations of one instruction of the chain.
template <typename Chain>
constexpr PeakLoop loop_of(MathType type, const char* instruction, int per_step) {
  return {type, instruction, static_cast<double>(per_step) * Chain::kChains, run_chains<Chain>};
}

}  // namespace
}  // namespace ulp::kernels
