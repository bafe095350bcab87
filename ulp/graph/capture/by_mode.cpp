// ulp::by_mode: where a model reads one tensor in eval mode and another in train mode.
#include <torch/library.h>
#include <torch/types.h>

#include "ulp/base/error.h"

namespace ulp::graph {
namespace {

/// The tensor of the mode. The other one is absent where the operations that make it run in their mode only.
at::Tensor by_mode(const std::optional<at::Tensor>& eval, const std::optional<at::Tensor>& train,
                   bool training) {
  const std::optional<at::Tensor>& chosen = training ? train : eval;
  if (!chosen || !chosen->defined()) {
    fail("graph.run", "expected the tensor of ", training ? "train" : "eval", " mode, got none");
  }
  return *chosen;
}

TORCH_LIBRARY_FRAGMENT(ulp, m) {
  m.def("by_mode(Tensor? eval, Tensor? train, bool training) -> Tensor");
}

TORCH_LIBRARY_IMPL(ulp, CompositeImplicitAutograd, m) {
  m.impl("by_mode", by_mode);
}

}  // namespace
}  // namespace ulp::graph
