// Calls into a component of the library from code that is also linked without it. Such code asks a Component
// for a table of functions; a file of the component provides the table before main():
//
//   constinit Component<Functions> reports("reports");               // a file of those who call
//   constexpr Functions kFunctions{...};                             // a file of the component
//   const Component<Functions>::Provider kProvider(reports, kFunctions);
#pragma once

#include "ulp/base/error.h"

namespace ulp {

/// The functions of one component; none in a program that is linked without it.
template <typename Functions>
class Component {
 public:
  /// `name` words errors.
  constexpr explicit Component(const char* name) : name_(name) {}
  Component(const Component&) = delete;
  Component& operator=(const Component&) = delete;

  /// Null in a program without the component.
  const Functions* find() const { return functions_; }
  /// Throws ulp::Error in a program without the component.
  const Functions& functions(const char* where) const {
    if (functions_ != nullptr) return *functions_;
    fail(ErrorCode::unavailable, where, "expected a program with the component '", name_,
         "', got one that is linked without it");
  }

  /// Provides the functions, which outlive it, to all who ask.
  class Provider {
   public:
    Provider(Component& component, const Functions& functions) { component.functions_ = &functions; }
  };

 private:
  const char* name_;
  const Functions* functions_ = nullptr;
};

}  // namespace ulp
