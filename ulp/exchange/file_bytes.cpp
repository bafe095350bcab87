#include "ulp/exchange/file_bytes.h"

#include <fstream>
#include <system_error>

#include "ulp/base/error.h"

namespace ulp::exchange {

std::string file_bytes(const char* where, const std::filesystem::path& path, int64_t most) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    fail_file(where, "expected a file, got '", path.string(), "'", error ? ": " + error.message() : "");
  const uint64_t size = std::filesystem::file_size(path, error);
  if (error) fail_file(where, "could not read '", path.string(), "': ", error.message());
  if (size > static_cast<uint64_t>(most))
    fail_file(where, "expected at most ", most, " bytes, got '", path.string(), "' of ", size);
  std::string bytes(size, '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(bytes.data(), static_cast<std::streamsize>(size)))
    fail_file(where, "could not read '", path.string(), "'");
  return bytes;
}

}  // namespace ulp::exchange
