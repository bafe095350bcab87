// The exception that every room throws, with one way of wording it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/base/export.h"

namespace ulp {

/// The kind of an error, for programs: texts are for people and may change between versions. Numbers keep
/// their meaning; later versions may add some. The C API has the same (ulp_error_code).
enum class ErrorCode {
  failed = 0,        ///< none of the kinds below
  bad_argument = 1,  ///< C API: NULL, an index out of range, an unknown name
  bad_option = 2,    ///< an option, or several that do not go together
  bad_shape = 3,     ///< a tensor of other sizes, dimensions or types, or another number of tensors
  bad_file = 4,      ///< a file that is missing, damaged, of another kind or of a newer version
  unsupported_op =
      5,  ///< operations that the engine, a file format or a pass does not have: see Error::places()
  unavailable = 6,    ///< what this build or this machine does not have: a component, an instruction set
  out_of_memory = 7,  ///< a limit of memory, or the system's end of it
  interrupted = 8     ///< Ctrl-C
};

/// "unsupported_op".
ULP_API const char* to_string(ErrorCode code);

/// A place in a model that an error is about. What is not known is empty.
struct ErrorPlace {
  std::string op = {};      ///< "aten::renorm"; of an ONNX file "Einsum"
  std::string node = {};    ///< its name in the graph or file
  std::string module = {};  ///< path of the module that it belongs to
  bool operator==(const ErrorPlace&) const = default;
};

/// The fields of an error beside its text.
struct ErrorInfo {
  ErrorCode code = ErrorCode::failed;
  std::vector<ErrorPlace> places = {};
};

/// An error of the library. what() reads `[room.function] expected X, got Y` and names the node or tensor.
/// Programs read code(), op() and node() and not the text.
class ULP_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ErrorInfo info = {});

  ErrorCode code() const noexcept { return info_->code; }
  /// The nodes that the error is about, the first one first; none where it is about something else.
  const std::vector<ErrorPlace>& places() const noexcept { return info_->places; }
  /// Op and node of the first place; empty without one.
  const std::string& op() const noexcept;
  const std::string& node() const noexcept;
  /// "room.function"; empty where the text has none.
  std::string_view where() const noexcept;
  /// The text behind "[room.function] ".
  std::string_view reason() const noexcept;
  /// For an error that says more about this one.
  const ErrorInfo& info() const noexcept { return *info_; }

 private:
  std::shared_ptr<const ErrorInfo> info_;  ///< shared, so that copies do not throw
};

/// A file that is damaged, truncated, hostile, of another kind or of a newer version. Its code is bad_file
/// where `info` has none. The tool exits with 3.
class ULP_API FileError : public Error {
 public:
  explicit FileError(const std::string& message, ErrorInfo info = {});
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
[[noreturn]] ULP_API void throw_error(const char* where, MessageParts parts, ErrorInfo info = {});
[[noreturn]] ULP_API void throw_file_error(const char* where, MessageParts parts, ErrorInfo info = {});

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

/// Throws Error of this kind with `[where] parts...`.
template <typename... Parts>
[[noreturn, gnu::always_inline]] inline void fail(ErrorCode code, const char* where, const Parts&... parts) {
  throw_error(where, {MessagePart(parts)...}, {.code = code});
}

/// Throws Error of this kind, about these nodes, with `[where] parts...`.
template <typename... Parts>
[[noreturn, gnu::always_inline]] inline void fail(ErrorInfo info, const char* where, const Parts&... parts) {
  throw_error(where, {MessagePart(parts)...}, std::move(info));
}

/// Throws FileError with `[where] parts...`.
template <typename... Parts>
[[noreturn, gnu::always_inline]] inline void fail_file(const char* where, const Parts&... parts) {
  throw_file_error(where, {MessagePart(parts)...});
}

/// Throws FileError of this kind, about these nodes, with `[where] parts...`.
template <typename... Parts>
[[noreturn, gnu::always_inline]] inline void fail_file(ErrorInfo info, const char* where,
                                                       const Parts&... parts) {
  throw_file_error(where, {MessagePart(parts)...}, std::move(info));
}

}  // namespace ulp
