// A captured model as a TensorFlow Lite file, which LiteRT runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "ulp/base/export.h"

namespace ulp {
class FieldVisitor;
namespace graph {
class GraphModule;
}
}  // namespace ulp

namespace ulp::exchange {

/// How a model becomes a TensorFlow Lite file.
struct ULP_API TfliteOptions {
  /// Size of the batch; 0 leaves it free: the file has it as 1, and LiteRT resizes it.
  int64_t batch = 1;
  /// Inputs that are quantized first come as codes, and results that were codes leave as codes.
  bool integer_io = false;
  /// Sizes of the free dimensions beside the batch, by their names; the largest where none is given.
  std::map<std::string, int64_t> sizes = {};

  /// What a user chooses.
  void visit_fields(FieldVisitor& visitor);
};

/// The model as it behaves in eval mode as the bytes of a TensorFlow Lite file; the model itself is not changed. Batch norms
/// are folded. Inputs of four dimensions, [N, C, H, W] in the model, are [N, H, W, C] in the file, and so are results of
/// four dimensions of operators on images; all else keeps its shape. Inputs and results keep their names, also in the signature
/// "serving_default". Statically quantized graphs become integer operators where a call reads codes and its result becomes
/// codes (all but the float ends for the profile tflite_int8), codes of [0, 255] as ones of [-128, 127]. Equal models give equal
/// bytes. Throws ulp::Error that names each call without a converter, with its node, and the ops that have one; for int8
/// layers whose sums can pass 2^31; and for models of 2 GB or more.
ULP_API std::string export_tflite(const graph::GraphModule& model, const TfliteOptions& options = {});

/// The same into a file, which is there whole or not at all. Throws ulp::Error where it cannot be written, too.
ULP_API void export_tflite(const graph::GraphModule& model, const std::filesystem::path& path,
                           const TfliteOptions& options = {});

}  // namespace ulp::exchange
