// How much a compressed file may unpack to.
#pragma once

#include <cstdint>

#include "ulp/base/error.h"

namespace ulp::io {

/// Four times the bytes of the file and 256 MiB: real data that deflate makes smaller than that is small.
inline constexpr uint64_t most_unpacked_bytes(uint64_t packed) {
  return 4 * packed + (uint64_t{256} << 20);
}

/// Throws FileError for a file that asks for more.
inline void check_unpacked(const char* where, const std::string& name, uint64_t packed, uint64_t unpacked) {
  if (unpacked <= most_unpacked_bytes(packed)) return;
  fail_file(where, "expected '", name, "' to unpack to at most ", most_unpacked_bytes(packed),
            " bytes (four times its ", packed, " and 256 MiB), got ", unpacked,
            "; write it without compression");
}

}  // namespace ulp::io
