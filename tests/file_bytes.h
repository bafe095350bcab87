// A file of the tests as text.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ulp::test {

/// All bytes of a file; empty where there is none.
inline std::string file_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace ulp::test
