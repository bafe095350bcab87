// The first line of a message of LibTorch's, without the trace behind it; internal to the room.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace ulp::distributed {

inline std::string first_line(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace ulp::distributed
