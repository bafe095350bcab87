// Sizes in a model file's description against the tensors that the file stores. Internal to the room.
#pragma once

#include <filesystem>

#include "ulp/app/model_io/model_file.h"

namespace ulp::app {

/// Throws FileError, before the network is made, for sizes that the stored tensors do not have: a small file
/// must not cost much memory.
void check_sizes(const std::filesystem::path& path, const ModelSpec& spec);

}  // namespace ulp::app
