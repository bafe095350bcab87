// A captured model as an ONNX file, which ONNX Runtime, OpenVINO and others run.
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

/// How a model becomes an ONNX file.
struct ULP_API OnnxOptions {
  /// Version of the standard operators, 17 to 21. It fixes the version of the file format: 10 for 21, 9 for 19
  /// and 20, 8 for 17 and 18.
  int64_t opset = 21;
  /// Writes tensors of 1024 bytes or more to a second file, which is named as the first one with ".data" behind it and
  /// belongs beside it. Models of 2 GB and more, which one file cannot hold, are always written so.
  bool external_data = false;
  /// Weights and arithmetic in float16; inputs and results stay float32, and so do recurrent layers. Batch norms are folded into
  /// the layers before them; the others stay float32. Weights that float16 cannot hold are an error. Of float models.
  bool fp16 = false;
  /// Copied into the file.
  std::map<std::string, std::string> metadata = {};

  /// What a user chooses.
  void visit_fields(FieldVisitor& visitor);
};

/// The model as it behaves in eval mode as the bytes of an ONNX file; the model itself is not changed. Parameters and
/// buffers keep their names as initializers. The batch is the free dimension "batch"; other free dimensions keep their
/// names. Statically quantized graphs become QuantizeLinear and DequantizeLinear nodes around float operators, dynamic ones
/// MatMulInteger, and weights alone DequantizeLinear nodes in blocks (f32, where they have minima). Linear layers over more than two dimensions keep their
/// weight as [in, out]. Equal models give equal bytes. Throws ulp::Error that names each call without a converter, with its
/// node, and the ops that have one; for bfloat16; for int8 layers whose sums can pass 2^31; and for models of 2 GB or more, which need two
/// files.
ULP_API std::string export_onnx(const graph::GraphModule& model, const OnnxOptions& options = {});

/// The same into a file, or two of them, each of which is there whole or not at all; the one with the weights is replaced first. Throws
/// ulp::Error where a file cannot be written, too.
ULP_API void export_onnx(const graph::GraphModule& model, const std::filesystem::path& path,
                         const OnnxOptions& options = {});

}  // namespace ulp::exchange
