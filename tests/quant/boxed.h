// Operators of PyTorch's without a C++ function.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace ulp::quant {

inline c10::IValue boxed(const char* op, const char* overload, std::vector<c10::IValue> arguments) {
  c10::Dispatcher::singleton().findSchemaOrThrow(op, overload).callBoxed(arguments);
  return arguments.at(0);
}

}  // namespace ulp::quant
