// Checksums, which tell one file from another of the same name, and one data set from another.
#pragma once

#include <cstdint>
#include <filesystem>

#include "ulp/base/export.h"
#include "ulp/train/task.h"

namespace ulp::app {

/// CRC-32 of the bytes of a file, or of the files of a folder in the order of their names. Throws FileError
/// for one that cannot be read.
ULP_API uint32_t checksum_of(const std::filesystem::path& path);

/// CRC-32 of the inputs of an epoch, sample by sample in their order.
ULP_API uint32_t checksum_of(train::BatchStream& epoch);

}  // namespace ulp::app
