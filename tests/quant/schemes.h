// Schemes by short names, and the scalar zero point of symmetric ones.
#pragma once

#include <torch/torch.h>

#include <string>

#include "ulp/quant/scheme/scheme.h"

namespace ulp::quant {

inline const Scheme kU8{};
inline const Scheme kS8{.is_signed = true, .mapping = Mapping::symmetric};
inline const Scheme kS8Restricted{
    .is_signed = true, .mapping = Mapping::symmetric, .range = Range::restricted};

/// A zero point for fake_quantize() and quantize().
inline const at::Tensor kZero = torch::zeros({1}, at::kInt);

/// "u8_affine", "s4_restricted"
inline Scheme scheme_of(const std::string& name) {
  Scheme scheme{.bits = name[1] - '0', .is_signed = name[0] == 's'};
  if (name.substr(3) != "affine") scheme.mapping = Mapping::symmetric;
  if (name.substr(3) == "restricted") scheme.range = Range::restricted;
  return scheme;
}

}  // namespace ulp::quant
