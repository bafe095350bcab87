// TorchScript files as modules.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <filesystem>

namespace ulp::app {

/// The module, in eval mode. Throws FileError for a file that holds none.
torch::jit::Module load_torchscript(const std::filesystem::path& path);

}  // namespace ulp::app
