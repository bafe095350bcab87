// What belongs to no engine: statuses, messages, types, instruction sets.
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>
#include <vector>

#include "ulp/formats/data_type.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/runtime/c_api/guard.h"

namespace ulp::runtime::c_api {
namespace {

static_assert(static_cast<int>(DataType::f32) == ULP_F32 && static_cast<int>(DataType::bf16) == ULP_BF16);
static_assert(static_cast<int>(DataType::u8) == ULP_U8 && static_cast<int>(DataType::i8) == ULP_I8);
static_assert(static_cast<int>(DataType::i32) == ULP_I32 && static_cast<int>(DataType::i64) == ULP_I64);
static_assert(static_cast<int>(DataType::f16) == ULP_F16 && static_cast<int>(DataType::i16) == ULP_I16);
static_assert(static_cast<int>(DataType::f64) == ULP_F64 && kDataTypeCount == ULP_F64 + 1);

constexpr const char* kStatusNames[] = {"ok",      "invalid argument", "file error",
                                        "refused", "out of memory",    "internal error"};
static_assert(std::size(kStatusNames) == ULP_INTERNAL_ERROR + 1);

// An error must be told without memory: the text has a fixed place, and ends in "..." where it is longer.
constexpr size_t kMostText = 4096;
thread_local char last_error[kMostText] = "";
thread_local ulp_error_code last_code = ULP_ERROR_FAILED;

static_assert(static_cast<int>(ErrorCode::failed) == ULP_ERROR_FAILED &&
              static_cast<int>(ErrorCode::bad_argument) == ULP_ERROR_BAD_ARGUMENT &&
              static_cast<int>(ErrorCode::bad_option) == ULP_ERROR_BAD_OPTION &&
              static_cast<int>(ErrorCode::bad_shape) == ULP_ERROR_BAD_SHAPE &&
              static_cast<int>(ErrorCode::bad_file) == ULP_ERROR_BAD_FILE);
static_assert(static_cast<int>(ErrorCode::unsupported_op) == ULP_ERROR_UNSUPPORTED_OP &&
              static_cast<int>(ErrorCode::unavailable) == ULP_ERROR_UNAVAILABLE &&
              static_cast<int>(ErrorCode::out_of_memory) == ULP_ERROR_OUT_OF_MEMORY &&
              static_cast<int>(ErrorCode::interrupted) == ULP_ERROR_INTERRUPTED);

/// The text of an error; `function` stands before one that does not say where it is from.
void keep_text(const char* text, const char* function = nullptr) noexcept {
  const int length = function == nullptr ? std::snprintf(last_error, kMostText, "%s", text)
                                         : std::snprintf(last_error, kMostText, "[%s] %s", function, text);
  if (length < static_cast<int>(kMostText)) return;
  char* end = last_error + kMostText - 4;
  while (end > last_error && (static_cast<unsigned char>(*end) & 0xC0U) == 0x80U)
    --end;  // not in a character
  std::memcpy(end, "...", 4);
}

DataType checked_type(const char* function, int32_t dtype) {
  if (dtype < 0 || dtype >= kDataTypeCount)
    refuse(function, "expected a ulp_dtype from 0 to ", kDataTypeCount - 1, ", got ", dtype);
  return static_cast<DataType>(dtype);
}

const std::vector<kernels::Isa>& isas() {
  static const std::vector<kernels::Isa> all = kernels::available_isas();
  return all;
}

}  // namespace

ulp_status keep_error(const char* function) noexcept {
  const auto keep = [](const Error& error, ulp_status status) {
    keep_text(error.what());
    last_code = static_cast<ulp_error_code>(error.code());
    return status;
  };
  last_code = ULP_ERROR_FAILED;
  try {
    throw;
  } catch (const BadArgument& error) {
    return keep(error, ULP_INVALID_ARGUMENT);
  } catch (const FileError& error) {
    return keep(error, ULP_FILE_ERROR);
  } catch (const Error& error) {
    return keep(error, ULP_REFUSED);
  } catch (const std::bad_alloc&) {
    keep_text("the system has no more memory to give", function);
    last_code = ULP_ERROR_OUT_OF_MEMORY;
    return ULP_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    keep_text(error.what(), function);
  } catch (...) {
    keep_text("an exception of an unknown kind", function);
  }
  return ULP_INTERNAL_ERROR;
}

}  // namespace ulp::runtime::c_api

using namespace ulp::runtime::c_api;

const char* ulp_version(void) {
  return ULP_VERSION;
}

const char* ulp_status_name(int32_t status) {
  return status >= 0 && status <= ULP_INTERNAL_ERROR ? kStatusNames[status] : "unknown status";
}

const char* ulp_last_error(void) {
  return last_error;
}

int32_t ulp_last_error_code(void) {
  return last_code;
}

const char* ulp_error_code_name(int32_t code) {
  return ulp::to_string(static_cast<ulp::ErrorCode>(code));
}

ulp_status ulp_dtype_bytes(int32_t dtype, size_t* bytes) {
  return guarded(__func__, [&](const char* where) {
    expect_pointer(where, bytes, "bytes");
    *bytes = static_cast<size_t>(ulp::element_bytes(checked_type(where, dtype)));
  });
}

ulp_status ulp_dtype_name(int32_t dtype, const char** name) {
  return guarded(__func__, [&](const char* where) {
    expect_pointer(where, name, "name");
    *name = to_string(checked_type(where, dtype));
  });
}

ulp_status ulp_isa_count(size_t* count) {
  return guarded(__func__, [&](const char* where) {
    expect_pointer(where, count, "count");
    *count = isas().size();
  });
}

ulp_status ulp_isa_name(size_t index, const char** name) {
  return guarded(__func__, [&](const char* where) {
    expect_pointer(where, name, "name");
    expect_index(where, index, isas().size(), "the instruction sets of this machine");
    *name = ulp::kernels::to_string(isas()[index]);
  });
}
