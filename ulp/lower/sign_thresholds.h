// The thresholds of chains that end in a sign.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "ulp/base/export.h"
#include "ulp/lower/channel_chain.h"

namespace ulp::lowering {

/// Of each channel, f32 [channels] or i32, and bool: +1 where x >= threshold, the other way round where flip.
struct SignThresholds {
  at::Tensor threshold, flip;
};

/// Thresholds for whole sums in [-most, most], of which only every second one occurs if `even_steps`: found by trying
/// all of them. `why` says which channel's signs change more than once, and then nothing is defined.
ULP_API SignThresholds sum_thresholds(const graph::Graph& graph, const ChannelChain& chain, int64_t most,
                                      bool even_steps, std::string& why);
/// Thresholds for real numbers, by halving the range of f32, tried on numbers in between. NaN gives -1, or +1 where
/// flip. Nothing is defined where a number has another sign.
ULP_API SignThresholds number_thresholds(const graph::Graph& graph, const ChannelChain& chain);

}  // namespace ulp::lowering
