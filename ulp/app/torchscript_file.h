// TorchScript files as modules.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <filesystem>

namespace ulp::app {

/// The module, in eval mode. Throws FileError for a file that holds none; of a pickle it says how to convert it.
torch::jit::Module load_torchscript(const std::filesystem::path& path);

}  // namespace ulp::app
