// What tells one file from another of the same name.
#pragma once

#include <cstdint>
#include <filesystem>

#include "ulp/base/export.h"

namespace ulp::app {

/// CRC-32 of the bytes of a file. Throws FileError for one that cannot be read.
ULP_API uint32_t checksum_of(const std::filesystem::path& path);

}  // namespace ulp::app
