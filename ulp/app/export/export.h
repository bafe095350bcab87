// What `ulp export` does beside writing the file: another runtime's results beside ours.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp {
namespace graph {
class GraphModule;
}

namespace app {

/// What another runtime made of a file.
struct ExportCheck {
  std::string runtime;     ///< "ONNX Runtime 1.31.1"
  int runs = 0;            ///< 0: it read the file and cannot run it here
  double largest = 0;      ///< largest |theirs - ours| as a share of the largest |ours|, over all runs
  int64_t operations = 0;  ///< of a file that was read alone
};

/// How far results may be from ours, as a share of the largest one.
struct ExportTolerance {
  double share = 0;
  const char* of = "";  ///< "a model in fp32"
};

/// 1e-5 of models in fp32, 5e-3 where the file computes in fp16, and 5e-2, some ten of 255 steps, where
/// activations are codes: one that a runtime rounds otherwise changes all that follow.
ULP_API ExportTolerance export_tolerance(const graph::GraphModule& model, bool fp16);

/// Of each runtime that is installed; how to install the others.
struct ExportChecks {
  std::vector<ExportCheck> done;
  std::vector<std::string> missing;  ///< "OpenVINO is not installed: pip install openvino"
};

/// Runs an ONNX file and the model that it was made of on the same random inputs, at batches of 1 and 7 and,
/// where sizes are free, at their largest and one below. ONNX Runtime and OpenVINO run in Python: `python3`,
/// or what the environment variable ULP_PYTHON names. Both compute in fp32, and do not round activations that
/// the file has in floats. Throws ulp::Error that says what to install where neither is there, and what a
/// runtime said that refused the file.
ULP_API ExportChecks check_onnx(const std::filesystem::path& file, graph::GraphModule& model);

/// Runs a TensorFlow Lite file that export_tflite() wrote and the model that it was made of on the same
/// random inputs, twice at the batch of the file, or at 1 and 7 where it is free (0), and free dimensions at
/// their largest. Codes that come or go are compared as numbers. Python is found, and errors are, as for
/// check_onnx().
ULP_API ExportChecks check_tflite(const std::filesystem::path& file, graph::GraphModule& model,
                                  int64_t batch);

/// Loads an archive that export_pt2() wrote by torch.export.load() in a process that imports torch alone, and
/// runs it beside the model that it was made of, on the inputs of check_onnx() and as many threads as here.
/// Python is found, and errors are, as for check_onnx().
ULP_API ExportChecks check_pt2(const std::filesystem::path& file, graph::GraphModule& model);

/// Reads a Core ML package with the parser of coremltools, which infers the sizes and types of all operations
/// and compares them with those that the package says. Core ML itself runs on Apple's systems alone. Python
/// is found, and errors are, as for check_onnx().
ULP_API ExportChecks check_coreml(const std::filesystem::path& package);

}  // namespace app
}  // namespace ulp
