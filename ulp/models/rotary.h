// The tables of rotary position embeddings. Not installed.
#pragma once

#include <ATen/core/Tensor.h>

#include "ulp/models/decoder.h"

namespace ulp::models {

/// The angle per position of each pair of `size` numbers, f32 (size / 2), as transformers rounds it.
at::Tensor rotary_frequencies(const RotaryConfig& config, int64_t size);

/// The factor of cosines and sines.
double rotary_attention_factor(const RotaryConfig& config);

/// Cosines and sines of all positions, each f32 (length, size): both halves of a row are the same.
struct RotaryTables {
  at::Tensor cos, sin;
};
RotaryTables rotary_tables(const RotaryConfig& config, int64_t size, int64_t length);

/// Turns each pair (i, i + d / 2) of the first d numbers of each head of x (B, heads, S, head_size) by its
/// angle; cos and sin (S, d).
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace ulp::models
