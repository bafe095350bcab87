// What every function of the C API is wrapped in: exceptions become a status and a message of the thread.
#pragma once

#include <cstddef>

#include "ulp/base/error.h"
#include "ulp/ulp_runtime.h"

namespace ulp::runtime::c_api {

/// An argument that is wrong whatever the engine: ULP_INVALID_ARGUMENT. Its code is bad_argument where `info`
/// has none.
class BadArgument : public Error {
 public:
  explicit BadArgument(const std::string& message, ErrorInfo info = {})
      : Error(message, info.code == ErrorCode::failed ? ErrorInfo{.code = ErrorCode::bad_argument} : info) {}
};

/// Throws BadArgument with `[function] parts...`.
template <typename... Parts>
[[noreturn]] void refuse(const char* function, const Parts&... parts) {
  throw BadArgument(message(function, parts...));
}

/// The same of this kind.
template <typename... Parts>
[[noreturn]] void refuse(ErrorCode code, const char* function, const Parts&... parts) {
  throw BadArgument(message(function, parts...), {.code = code});
}

/// Throws BadArgument where the pointer is null.
inline void expect_pointer(const char* function, const void* pointer, const char* name) {
  if (pointer == nullptr) refuse(function, "expected a pointer for '", name, "', got NULL");
}

/// Throws BadArgument where there is no such element.
inline void expect_index(const char* function, size_t index, size_t count, const char* of) {
  if (index >= count) refuse(function, "expected an index below ", count, " of ", of, ", got ", index);
}

/// Runs the call, in which nothing but an argument of the caller can be wrong; an unknown name is one, too.
template <typename Call>
decltype(auto) blame_arguments(const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    throw BadArgument(error.what(), error.code() == ErrorCode::bad_option ? ErrorInfo{} : error.info());
  }
}

/// Keeps what the exception that is being handled says for ulp_last_error(), and gives its status. Allocates nothing.
ulp_status keep_error(const char* function) noexcept;

/// Runs call(function). No exception leaves it.
template <typename Call>
ulp_status guarded(const char* function, const Call& call) noexcept {
  try {
    call(function);
    return ULP_OK;
  } catch (...) {
    return keep_error(function);
  }
}

}  // namespace ulp::runtime::c_api
