#include "ulp/base/error.h"

#include <sstream>

namespace ulp {

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

void throw_error(const char* where, MessageParts parts) {
  throw Error(write_message(where, parts));
}

void throw_file_error(const char* where, MessageParts parts) {
  throw FileError(write_message(where, parts));
}

}  // namespace ulp
