#include "ulp/base/glob.h"

namespace ulp {

bool matches_pattern(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    for (size_t i = 0; i <= text.size(); ++i) {
      if (matches_pattern(pattern.substr(1), text.substr(i))) return true;
    }
    return false;
  }
  return !text.empty() && pattern[0] == text[0] && matches_pattern(pattern.substr(1), text.substr(1));
}

bool matches_path(std::string_view pattern, std::string_view path) {
  for (size_t end = 0; end != std::string_view::npos;) {
    end = path.find('.', end + 1);
    if (matches_pattern(pattern, path.substr(0, end))) return true;
  }
  return false;
}

}  // namespace ulp
