// The exception that every room throws, with one way of wording it.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include "ulp/base/export.h"

namespace ulp {

/// An error of the library. what() reads `[room.function] expected X, got Y` and names the node or tensor.
class ULP_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

/// A file that is damaged, truncated, hostile, of another kind or of a newer version. The tool exits with 3.
class ULP_API FileError : public Error {
 public:
  using Error::Error;
};

/// Concatenates anything that prints into `[where] ...`.
template <typename... Parts>
std::string message(const char* where, const Parts&... parts) {
  std::ostringstream out;
  out << '[' << where << "] ";
  (out << ... << parts);
  return out.str();
}

/// Throws Error with `[where] parts...`.
template <typename... Parts>
[[noreturn]] void fail(const char* where, const Parts&... parts) {
  throw Error(message(where, parts...));
}

/// Throws FileError with `[where] parts...`.
template <typename... Parts>
[[noreturn]] void fail_file(const char* where, const Parts&... parts) {
  throw FileError(message(where, parts...));
}

}  // namespace ulp
