#include "ulp/base/error.h"

#include <array>
#include <sstream>

namespace ulp {

namespace {

constexpr std::array kCodeNames = {"failed",      "bad_argument",  "bad_option",
                                   "bad_shape",   "bad_file",      "unsupported_op",
                                   "unavailable", "out_of_memory", "interrupted"};
static_assert(kCodeNames.size() == static_cast<size_t>(ErrorCode::interrupted) + 1);

const std::string kNothing;

ErrorInfo of_file(ErrorInfo info) {
  if (info.code == ErrorCode::failed) info.code = ErrorCode::bad_file;
  return info;
}

}  // namespace

const char* to_string(ErrorCode code) {
  const auto index = static_cast<size_t>(code);
  return index < kCodeNames.size() ? kCodeNames[index] : "unknown code";
}

Error::Error(const std::string& message, ErrorInfo info)
    : std::runtime_error(message), info_(std::make_shared<const ErrorInfo>(std::move(info))) {}

const std::string& Error::op() const noexcept {
  return places().empty() ? kNothing : places().front().op;
}

const std::string& Error::node() const noexcept {
  return places().empty() ? kNothing : places().front().node;
}

std::string_view Error::where() const noexcept {
  const std::string_view text = what();
  const size_t end = text.starts_with('[') ? text.find("] ") : std::string_view::npos;
  return end == std::string_view::npos ? std::string_view() : text.substr(1, end - 1);
}

std::string_view Error::reason() const noexcept {
  const std::string_view text = what();
  const std::string_view own = where();
  return own.empty() ? text : text.substr(own.size() + 3);
}

FileError::FileError(const std::string& message, ErrorInfo info) : Error(message, of_file(std::move(info))) {}

ULP_PRINTED_ONCE();

std::string write_parts(MessageParts parts) {
  std::ostringstream out;
  for (const MessagePart& part : parts) part.write(out);
  return out.str();
}

std::string write_message(const char* where, MessageParts parts) {
  std::ostringstream out;
  out << '[' << where << "] ";
  for (const MessagePart& part : parts) part.write(out);
  return out.str();
}

void throw_error(const char* where, MessageParts parts, ErrorInfo info) {
  throw Error(write_message(where, parts), std::move(info));
}

void throw_file_error(const char* where, MessageParts parts, ErrorInfo info) {
  throw FileError(write_message(where, parts), std::move(info));
}

}  // namespace ulp
