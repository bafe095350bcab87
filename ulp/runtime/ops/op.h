// What every op of the engine provides. To add one: an enumerator in plan.h, a file <name>_op.cpp that
// defines an OpDef, and its line in op_table.cpp; tests/runtime checks the new op against a plain loop.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ulp/base/parallel.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/runtime/plan/plan.h"
#include "ulp/runtime/plan/step_view.h"

namespace ulp::runtime {

/// Where one run of a step reads and writes.
struct RunArgs {
  int64_t batch;
  std::span<const void* const> inputs;
  void* output;
  void* workspace;  ///< 64-byte aligned, workspace_bytes() long
  const Parallel& parallel;
};

/// A step made ready for one machine: constants packed, sizes known.
class Runner {
 public:
  virtual ~Runner() = default;
  virtual size_t workspace_bytes(int64_t /*batch*/, int /*workers*/) const { return 0; }
  /// Neither allocates nor throws.
  virtual void run(const RunArgs& args) const = 0;
  /// The kernel chosen, for profiles.
  virtual std::string kernel() const = 0;
};

/// What the output's memory may be.
enum class Sharing : uint8_t {
  none,      ///< apart from every input
  in_place,  ///< an input that nobody reads later and that has the same bytes
  alias      ///< exactly the input: the step does nothing when it gets that memory
};

/// Fields of Step beside inputs and output that an op reads; the others must keep their defaults.
struct UsedFields {
  bool window = false, groups = false, activation = false, range = false;
  bool heads = false;  ///< heads, scale and causal
  bool epsilon = false, token = false, per_tensor = false, reverse = false;
  bool size = false;  ///< size_h, size_w and align_corners
};

inline Sharing share_nothing(const StepView&) {
  return Sharing::none;
}
inline Sharing share_in_place(const StepView&) {
  return Sharing::in_place;
}

/// OpDef::prepare for a Runner that is made from its step alone.
template <typename AnyRunner>
std::unique_ptr<Runner> make_runner(const StepView& view, kernels::Isa isa) {
  return std::make_unique<AnyRunner>(view, isa);
}

/// Defaults are those of an op with one input and no constants whose output has memory of its own.
struct OpDef {
  Op op;
  const char* name;
  size_t min_inputs = 1, max_inputs = 1;
  UsedFields uses{};
  std::vector<const char*> roles{};  ///< constants it may have
  /// Checks inputs and constants and gives the output's shape; does not look at the output.
  std::vector<int64_t> (*infer)(const StepView&);
  /// Checks the output's type, layout and scale.
  void (*check_output)(const StepView&);
  Sharing (*sharing)(const StepView&) = share_nothing;
  std::unique_ptr<Runner> (*prepare)(const StepView&, kernels::Isa);
};

/// The op's definition.
const OpDef& op_def(Op op);
/// Null for an unknown word.
const OpDef* find_op(const std::string& name);

}  // namespace ulp::runtime
