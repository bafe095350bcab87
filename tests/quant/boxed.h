// Operators of PyTorch's without a C++ function.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cpu/Utils.h>

#include <vector>

namespace ulp::quant {

inline c10::IValue boxed(const char* op, const char* overload, std::vector<c10::IValue> arguments) {
  c10::Dispatcher::singleton().findSchemaOrThrow(op, overload).callBoxed(arguments);
  return arguments.at(0);
}

/// Whether PyTorch's sums of two products of 8 bits saturate at 16, as they do without VNNI: codes of weights beyond 64 then
/// give other numbers.
inline bool pytorch_saturates() {
  return !at::cpu::is_avx512_vnni_supported();
}

}  // namespace ulp::quant
