// Finds out which value each tensor argument of a trace is, undoing in-place writes on the way.
#pragma once

#include <compare>
#include <map>
#include <set>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/graph/capture/trace.h"

namespace ulp::graph {

/// Names a value of a trace: the i-th input, the i-th attribute of the subject, an output of the i-th call,
/// or a tensor from outside that was first seen as the element-th tensor argument of the i-th call.
struct ValueKey {
  enum class Kind : uint8_t { input, attribute, call, constant };
  Kind kind = Kind::input;
  int32_t index = 0;
  int32_t element = 0;
  auto operator<=>(const ValueKey&) const = default;
};

/// A tensor that is a constant in each run is not the same in all of them.
class ChangedConstant : public Error {
 public:
  using Error::Error;
};

/// A custom autograd function stands in the way.
class CustomFunction : public Error {
 public:
  using Error::Error;
};

/// The values a tensor may stand for: several when an op returned its argument itself (dropout in eval mode,
/// contiguous of a dense tensor), latest last.
using Candidates = std::vector<ValueKey>;

struct ResolvedCall {
  std::vector<Candidates> tensors;  ///< for each tensor argument, as for_each_tensor visits; empty: undefined
  bool functional = false;          ///< an in-place op on an intermediate value: to be replayed out of place
};

struct Resolved {
  std::vector<ResolvedCall> calls;
  std::vector<Candidates> result;
  std::map<ValueKey, at::Tensor> constants;
  /// Buffers that no call writes and that the model read numbers of: attributes of the subject by their
  /// index.
  std::set<size_t> conditions;
};

/// Adds calls to the trace that bring what is written through views into what is viewed and read later
/// (written_views.h). Throws ulp::Error naming the op where that cannot be, and for writes to tensors that are not the
/// model's, numbers read from tensors, and custom autograd functions.
Resolved resolve(Trace& trace, const Subject& subject);

/// Whether a custom autograd function made the call, or one of its arguments: the results have gradients, which
/// were not recorded. To be asked while the trace holds its tensors.
bool of_custom_function(const TracedCall& call);

/// Whether the call gives memory that nothing has been written to.
bool leaves_unwritten(const TracedCall& call);

/// Whether two tensors have an element in common.
bool overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace ulp::graph
