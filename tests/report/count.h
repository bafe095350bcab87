// How often a text holds another.
#pragma once

#include <string>

namespace ulp::report {

inline size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace ulp::report
