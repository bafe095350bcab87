#include "ulp/base/read_file.h"

#include <fstream>

#include "ulp/base/error.h"

namespace ulp {

std::string read_file(const char* where, const std::filesystem::path& path, uintmax_t most) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    fail_file(where, "expected a file, got '", path.string(), "'");
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > most)
    fail_file(where, "expected at most ", most, " bytes in '", path.string(), "', got ", size);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) fail_file(where, "could not read '", path.string(), "'");
  std::string bytes(size, '\0');
  if (!file.read(bytes.data(), static_cast<std::streamsize>(size)))
    fail_file(where, "could not read all of '", path.string(), "'");
  return bytes;
}

}  // namespace ulp
