#include "ulp/base/enum_names.h"

namespace ulp {

std::string one_of(std::span<const char* const> words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace ulp
