// A file in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ulp::exchange {

/// All bytes of a file. Throws FileError of `where` that names the file for one that is none, cannot be read, or has more than
/// `most` bytes.
std::string file_bytes(const char* where, const std::filesystem::path& path, int64_t most);

}  // namespace ulp::exchange
