// What a struct with a static member function template fields(self, visit) saves: its numbers by name.
#pragma once

#include <map>
#include <string>

namespace ulp::amp {

template <typename Fields>
std::map<std::string, double> saved_fields(const Fields& from) {
  std::map<std::string, double> state;
  Fields::fields(from,
                 [&](const char* name, const auto& value) { state[name] = static_cast<double>(value); });
  return state;
}

}  // namespace ulp::amp
