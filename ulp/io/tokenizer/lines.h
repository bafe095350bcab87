// Long texts in little memory, line by line. Internal to the room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "ulp/base/error.h"

namespace ulp::io {

/// Calls `use` with each line, its end included, in order. An Error of it is thrown again with the number of the line behind it.
template <typename Use>
void for_each_line(std::string_view text, Use&& use) {
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    ++number;
    try {
      use(text.substr(at, end - at));
    } catch (const Error& error) {
      throw Error(std::string(error.what()) + " of line " + std::to_string(number), error.info());
    }
    at = end;
  }
}

}  // namespace ulp::io
