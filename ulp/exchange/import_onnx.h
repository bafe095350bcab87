// An ONNX file as a captured model, which trains.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/exchange/size_range.h"

namespace ulp {
namespace graph {
class GraphModule;
}
}  // namespace ulp

namespace ulp::exchange {

/// What becomes of QuantizeLinear and DequantizeLinear.
enum class QdqForm : uint8_t {
  codes,  ///< codes as they are, for engines; only what is not quantized trains
  fake    ///< the same numbers by fake quantization, whose weights are floats and train
};

}  // namespace ulp::exchange

template <>
struct ulp::EnumNames<ulp::exchange::QdqForm> {
  static constexpr std::array<Word<exchange::QdqForm>, 2> list = {
      {{exchange::QdqForm::codes, "codes", "integer codes"},
       {exchange::QdqForm::fake, "fake", "fake quantization, which trains"}}};
};

namespace ulp::exchange {

/// What an ONNX file does not say.
struct ULP_API OnnxImportOptions {
  using Range = SizeRange;
  /// By the names that the file gives its free dimensions, other than the batch. A dimension that is not
  /// here is free from 1 to `longest`; one whose smallest size is its largest, or has no largest (0), is fixed; an unnamed one is called
  /// "INPUT.DIM".
  std::map<std::string, Range> sizes = {};
  int64_t longest = 64;
  /// Height and width of images, inputs of floats [N, C, H, W], where the file leaves them free; 0: they
  /// stay free.
  int64_t image_size = 0;
  int64_t image_width = 0;  ///< the width alone, where `image_size` is the height; 0: `image_size`
  /// Called once for each dimension that `image_size` fixes, when the model is made; null: nobody asks.
  std::function<void(const FixedSize&)> on_fixed_size = nullptr;
  /// Makes dimension 0 of every input the batch where the file has it as one and the same number, and the
  /// nodes can compute at other ones.
  bool free_batch = false;
  QdqForm qdq = QdqForm::codes;
  /// Inputs that are numbers of the model from then on, by their names: axes, sizes, counts, on which the sizes
  /// of results depend. The model has the other inputs. Throws for a name that is no input, and for a value of
  /// another type or of sizes that the input cannot have.
  std::map<std::string, at::Tensor> values = {};
  /// Bytes of all values of one run, beyond which a file is refused before anything is computed.
  int64_t max_bytes = int64_t{4} << 30;
};

/// A model from a file of ONNX, by the opsets 6 to 28 of the standard operators, in eval mode. It is
/// captured (see graph::capture), so it trains: batch norms and dropouts follow its mode, and what layers
/// read as weights are parameters under the names of the file; other tensors are buffers. The batch and
/// other named dimensions stay free. Matrices that stand to the right of a product are kept transposed, as
/// a linear layer's weight is. Products behind a softmax become attention, and spelled-out GELU, SiLU and
/// layer norms their operators, where they mean the same. Memory stays in proportion to the file, tensors
/// in other files are looked for in its folder alone, and the result of each node is measured before it is
/// computed. Throws FileError that names the file and the place for anything that is no ONNX model, or has
/// an operator, a type or a dependence on data that a graph cannot have.
ULP_API std::shared_ptr<graph::GraphModule> import_onnx(const std::filesystem::path& path,
                                                        const OnnxImportOptions& options = {});

/// The same of a file's bytes. `name` stands for the file in messages; tensors in other files are looked
/// for in its folder.
ULP_API std::shared_ptr<graph::GraphModule> import_onnx(std::string_view bytes,
                                                        const std::filesystem::path& name,
                                                        const OnnxImportOptions& options = {});

/// What a file says of itself beside its graph (metadata_props). Throws as import_onnx() does.
ULP_API std::map<std::string, std::string> onnx_metadata(const std::filesystem::path& path);

}  // namespace ulp::exchange
