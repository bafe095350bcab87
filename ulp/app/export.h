// What `ulp export` does beside writing the file: another runtime's results beside ours.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "ulp/base/export.h"

namespace ulp {
namespace graph {
class GraphModule;
}

namespace app {

/// What another runtime made of a file.
struct ExportCheck {
  std::string runtime;  ///< "ONNX Runtime 1.31.1"
  int runs = 0;
  double largest = 0;  ///< largest |theirs - ours| as a share of the largest |ours|, over all runs
};

/// Runs an ONNX file and the model that it was made of on the same random inputs, at batches of 1 and 7 and, where
/// sizes are free, at their largest and one below. ONNX Runtime runs in Python: `python3`, or what the environment
/// variable ULP_PYTHON names. Throws ulp::Error that says what to install where it is not there, and what it said
/// where it refused the file.
ULP_API ExportCheck check_onnx(const std::filesystem::path& file, graph::GraphModule& model);

/// Runs a TensorFlow Lite file that export_tflite() wrote and the model that it was made of on the same random inputs, twice at the batch
/// of the file, or at 1 and 7 where it is free (0), and free dimensions at their largest. Codes that come or go are compared as
/// numbers. Python is found, and errors are, as for check_onnx().
ULP_API ExportCheck check_tflite(const std::filesystem::path& file, graph::GraphModule& model, int64_t batch);

}  // namespace app
}  // namespace ulp
