// The exception that every room throws, with one way of wording it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>

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

/// Prints a value through a pointer to it. The common types are instantiated once, in error.cpp.
template <typename T>
void print_value(std::ostream& out, const void* value) {
  out << *static_cast<const T*>(value);
}
#define ULP_PRINTED_ONCE(keyword)                                                          \
  keyword template ULP_API void print_value<std::string>(std::ostream&, const void*);      \
  keyword template ULP_API void print_value<std::string_view>(std::ostream&, const void*); \
  keyword template ULP_API void print_value<const char*>(std::ostream&, const void*);      \
  keyword template ULP_API void print_value<char>(std::ostream&, const void*);             \
  keyword template ULP_API void print_value<bool>(std::ostream&, const void*);             \
  keyword template ULP_API void print_value<int>(std::ostream&, const void*);              \
  keyword template ULP_API void print_value<unsigned>(std::ostream&, const void*);         \
  keyword template ULP_API void print_value<int64_t>(std::ostream&, const void*);          \
  keyword template ULP_API void print_value<size_t>(std::ostream&, const void*);           \
  keyword template ULP_API void print_value<float>(std::ostream&, const void*);            \
  keyword template ULP_API void print_value<double>(std::ostream&, const void*)
ULP_PRINTED_ONCE(extern);

/// One part of a message, whatever its type: refers to a value that prints with `<<` and must live until the message is
/// written. A call of fail() makes no code of its own beyond a list of these.
class MessagePart {
 public:
  template <size_t kLength>
  MessagePart(const char (&text)[kLength]) : value_(text), print_(nullptr) {}
  template <typename T>
  MessagePart(const T& value) : value_(&value), print_(&print_value<T>) {}

  void write(std::ostream& out) const {
    if (print_ == nullptr) {
      out << static_cast<const char*>(value_);
    } else {
      print_(out, value_);
    }
  }

 private:
  const void* value_;
  void (*print_)(std::ostream&, const void*);  ///< null: characters up to a zero
};

using MessageParts = std::initializer_list<MessagePart>;
ULP_API std::string write_parts(MessageParts parts);
ULP_API std::string write_message(const char* where, MessageParts parts);
[[noreturn]] ULP_API void throw_error(const char* where, MessageParts parts);
[[noreturn]] ULP_API void throw_file_error(const char* where, MessageParts parts);

/// Concatenates anything that prints.
template <typename... Parts>
std::string concatenate(const Parts&... parts) {
  return write_parts({MessagePart(parts)...});
}

/// Concatenates anything that prints into `[where] ...`.
template <typename... Parts>
std::string message(const char* where, const Parts&... parts) {
  return write_message(where, {MessagePart(parts)...});
}

/// Throws Error with `[where] parts...`.
template <typename... Parts>
[[noreturn, gnu::always_inline]] inline void fail(const char* where, const Parts&... parts) {
  throw_error(where, {MessagePart(parts)...});
}

/// Throws FileError with `[where] parts...`.
template <typename... Parts>
[[noreturn, gnu::always_inline]] inline void fail_file(const char* where, const Parts&... parts) {
  throw_file_error(where, {MessagePart(parts)...});
}

}  // namespace ulp
