// The message of the error that an action throws.
#pragma once

#include <functional>
#include <string>

#include "ulp/base/error.h"

namespace ulp::quant::test {

/// Empty if there was none.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace ulp::quant::test
