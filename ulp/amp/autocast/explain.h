// Reports the precision of each operation and its reason: one row an operation, with the casts that autocast
// added.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::graph {
class GraphModule;
}
namespace ulp::report {
struct Table;
}
namespace torch::nn {
class Module;
}

namespace ulp::amp {

/// One operation that ran.
struct ExplainRow {
  std::string op;    ///< "aten::linear"
  std::string path;  ///< of the module: "layer1.0.conv1"; empty where it is not known
  std::vector<at::ScalarType>
      in;  ///< of its floating and complex inputs, in order, as the caller passed them
  at::ScalarType computed = at::ScalarType::Undefined;  ///< what autocast made of the first of them
  std::vector<at::ScalarType> out;                      ///< of its results
  int64_t casts = 0;                                    ///< changes of a tensor's dtype inside
  int64_t cast_bytes = 0;                               ///< read and written by them
  std::string reason;  ///< "lower_precision list", "in-place: left alone" ...

  bool operator==(const ExplainRow&) const = default;
};

/// The casts of one forward pass under autocast.
struct Explanation {
  std::vector<ExplainRow> rows;  ///< in order of execution

  ULP_API int64_t casts() const;
  ULP_API int64_t cast_bytes() const;
  /// Columns op, module, in, computed, out, casts, KiB, reason.
  ULP_API report::Table table() const;
  /// {"rows": [{"op", "path", "in", "computed", "out", "casts", "cast_bytes", "reason"}], "casts",
  /// "cast_bytes"}
  ULP_API std::string to_json() const;
};

/// Runs the callable once and explains the operations of this thread, those of a backward pass in it too. An
/// operation that is on no list but calls some that are (a loss, for one) is replaced by what it calls. Open
/// the Autocast inside of the callable or around this call.
///
///   auto why = ulp::amp::explain([&] { model->forward(x); });
///   std::cout << ulp::report::to_text(why.table());
ULP_API Explanation explain(const std::function<void()>& run);

/// Explains a run with the paths of `root`'s modules, which follow from the parameters that an operation
/// reads.
ULP_API Explanation explain(const torch::nn::Module& root, const std::function<void()>& run);

/// Explains a forward pass of a captured model, with the path of every operation as far as its graph has it.
ULP_API Explanation explain(graph::GraphModule& module, const std::vector<at::Tensor>& inputs);

}  // namespace ulp::amp
