// A captured model as a .pt2 archive of PyTorch's torch.export, which Python loads, runs and compiles.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "ulp/base/export.h"

namespace ulp {
namespace graph {
class GraphModule;
}
}  // namespace ulp

namespace ulp::exchange {

/// What an archive holds beside the program.
struct ULP_API Pt2Options {
  /// Texts by names, which torch.export.load(extra_files = ...) gives back.
  std::map<std::string, std::string> metadata = {};
};

/// The model as it behaves in eval mode as the bytes of a .pt2 archive; the model itself is not changed.
/// torch.export.load() of PyTorch 2.13 reads it in a process that imports torch alone, and
/// torch._inductor.aoti_compile_and_package() compiles it. The nodes are the graph's own ATen calls: the
/// results have the same bits on the same machine. Parameters, buffers and constants keep their names, tied
/// ones share their memory, and results their structure. The batch and free dimensions are dynamic, with the
/// ranges and multiples of the graph. Codes of static int8 become arithmetic on floats with the numbers of
/// ulp's operators. Tensors of other devices are written for the CPU. Equal models give equal bytes. Throws
/// ulp::Error that names each call without a form, with its node; inputs and tensors of types that ulp does
/// not write (fp8, integers of 16 bits and more without a sign); and observers. Format:
/// torch/_export/serde/schema.py, version 8.20, and torch/export/pt2_archive, version 0, of PyTorch 2.13.
ULP_API std::string export_pt2(const graph::GraphModule& model, const Pt2Options& options = {});

/// The same into a file, which is there whole or not at all; dense weights on the CPU are not copied on the way. Throws
/// ulp::Error where it cannot be written, too.
ULP_API void export_pt2(const graph::GraphModule& model, const std::filesystem::path& path,
                        const Pt2Options& options = {});

}  // namespace ulp::exchange
