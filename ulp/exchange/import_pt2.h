// A .pt2 archive of PyTorch's torch.export as a captured model, which trains.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "ulp/base/export.h"
#include "ulp/exchange/size_range.h"

namespace ulp {
namespace graph {
class GraphModule;
}
}  // namespace ulp

namespace ulp::exchange {

/// What an archive does not say.
struct ULP_API Pt2ImportOptions {
  /// By the names of free dimensions other than the batch, "INPUT.DIM". One that is not here has the range that it was exported
  /// with, and 1 to `longest` where that has no end.
  std::map<std::string, SizeRange> sizes = {};
  int64_t longest = 64;
  /// Bytes of all tensors of one run, beyond which an archive is refused.
  int64_t max_bytes = int64_t{4} << 30;
};

/// A model that torch.export.export() and torch.export.save() of PyTorch 2.13 wrote, captured (see graph::capture) from the
/// same ATen calls: the same results and gradients bit for bit. Parameters and buffers keep their names, and tied ones stay
/// tied. A dimension that was exported as dynamic stays free: the first one that is a dimension 0 is the batch. Batch norms and
/// dropouts follow the graph's mode; those that did not train in a program that was exported in train mode stay so. The graph
/// comes back in the mode that it was exported in. Memory stays in proportion to the archive and within max_bytes; pickled
/// parts of an archive are never read. Throws FileError that names the file and the place for anything else, and for control
/// flow, operators of other libraries, and numbers that follow the values of tensors.
ULP_API std::shared_ptr<graph::GraphModule> import_pt2(const std::filesystem::path& path,
                                                       const Pt2ImportOptions& options = {});

/// The same of an archive's bytes; `name` stands for the file in messages.
ULP_API std::shared_ptr<graph::GraphModule> import_pt2(std::string_view bytes,
                                                       const std::filesystem::path& name,
                                                       const Pt2ImportOptions& options = {});

}  // namespace ulp::exchange
