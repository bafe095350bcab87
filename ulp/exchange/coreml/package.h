// The folder of a Core ML model: a manifest, the program and the file of its weights.
#pragma once

#include <filesystem>

#include "ulp/exchange/coreml/model.h"

namespace ulp::exchange::coreml {

/// Throws ulp::Error for a name that does not end in ".mlpackage", and where something else than a package has it.
void check_target(const std::filesystem::path& path);

/// Writes the package to a folder beside `path`, which takes its place when it is whole. Throws ulp::Error as check_target() does, and
/// where the folder cannot be written.
void write_package(const Model& model, const std::filesystem::path& path);

}  // namespace ulp::exchange::coreml
