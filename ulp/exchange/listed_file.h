// What TensorFlow Lite files and Core ML packages hold, which are written and not read back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::exchange {

/// An operator, in the order in which the file has it.
struct ListedOperator {
  std::string op;  ///< "CONV_2D", "conv"
  std::vector<std::string> inputs, outputs;
};

/// A tensor that the file stores, reads or gives.
struct ListedTensor {
  std::string name, type;
  std::vector<int64_t> shape;  ///< -1 for a size that is free
  uint64_t bytes = 0;          ///< that the file stores; 0 for what is computed
  std::string use;             ///< "input", "output", "stored", or nothing
};

struct ListedFile {
  std::vector<ListedOperator> operators;
  std::vector<ListedTensor> tensors;
};

/// The operators and tensors of all graphs of a .tflite file. Throws FileError that names the file for one that is missing, damaged or
/// hostile. Nothing of it runs.
ULP_API ListedFile list_tflite(const std::filesystem::path& path);

/// The operators of a Core ML package's ML program, but its constants, which are stored tensors; what it reads and gives; not those of blocks inside an operator. Throws FileError
/// that names the file for a package that is missing, damaged, hostile, or of another kind than an ML program.
ULP_API ListedFile list_coreml(const std::filesystem::path& package);

}  // namespace ulp::exchange
