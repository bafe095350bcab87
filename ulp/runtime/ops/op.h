// What every op of the engine provides. To add one: a line in list.h and a file <name>_op.cpp that defines
// ops::<name>, with <name>_op.h for attributes of its own; tests/runtime checks the new op against a plain
// loop.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ulp/base/parallel.h"
#include "ulp/kernels/conv/conv.h"
#include "ulp/kernels/isa/isa.h"
#include "ulp/runtime/ops/fault.h"
#include "ulp/runtime/ops/work.h"
#include "ulp/runtime/plan/plan.h"
#include "ulp/runtime/plan/step_view.h"

namespace ulp::runtime {

/// What a context keeps between its runs, as one step sees it.
struct StepMemory {
  std::byte* data = nullptr;  ///< of the first item of this run; what was kept before `position` is there
  size_t item_bytes = 0;      ///< from item to item
  int64_t position = 0;       ///< rows that the context has taken in earlier runs
};

/// Where one run of a step reads and writes.
struct RunArgs {
  int64_t batch;
  std::span<const void* const> inputs;
  void* output;
  void* workspace;  ///< 64-byte aligned, workspace_bytes() long
  const Parallel& parallel;
  const StepFaults& faults;  ///< takes what a step cannot compute with: run() does not throw
  StepMemory memory = {};    ///< of an op with OpDef::kept
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
  /// Why it is this one, where that was a choice; for profiles.
  virtual std::string note() const { return ""; }
  /// Of products and weights, where zeros are left out.
  virtual kernels::Density density(int64_t /*batch*/) const { return {}; }
};

/// What the output's memory may be.
enum class Sharing : uint8_t {
  none,      ///< apart from every input
  in_place,  ///< an input that nobody reads later and that has the same bytes
  alias      ///< exactly the input: the step does nothing when it gets that memory
};

inline Sharing share_nothing(const StepView&) {
  return Sharing::none;
}
inline Sharing share_in_place(const StepView&) {
  return Sharing::in_place;
}

inline bool items_apart(const StepView&) {
  return false;
}

/// Which input of a step holds ids, and that they are in [low, high).
struct IdUse {
  size_t input = 0;
  int64_t low = 0, high = 0;
};
inline std::optional<IdUse> no_ids(const StepView&) {
  return std::nullopt;
}

/// What a step needs of the runs before, or is in the order of rows that several runs share.
struct Kept {
  size_t item_bytes = 0;  ///< memory for one item of the batch, a multiple of 4
  int64_t rows = 0;       ///< that one run takes
  int64_t capacity = 0;   ///< rows of all runs together
};
inline std::optional<Kept> nothing_kept(const StepView&) {
  return std::nullopt;
}

/// Twice the bytes of the step's constants: packing pads, and adds sums of its own.
size_t packed_constants(const StepView& view);

/// OpDef::prepare for a Runner that is made from its step alone.
template <typename AnyRunner>
std::unique_ptr<Runner> make_runner(const StepView& view, kernels::Isa isa) {
  return std::make_unique<AnyRunner>(view, isa);
}

/// Defaults are those of an op with one input and no constants whose output has memory of its own.
struct OpDef {
  size_t min_inputs = 1, max_inputs = 1;
  std::vector<const char*> roles{};  ///< constants it may have
  /// Checks inputs and constants and gives the output's shape; does not look at the output.
  std::vector<int64_t> (*infer)(const StepView&);
  /// Checks the output's type, layout and scale.
  void (*check_output)(const StepView&);
  Sharing (*sharing)(const StepView&) = share_nothing;
  /// True where the batch is never cut: an item's result depends on the others, or constants are read so often that they
  /// have to serve all items at once.
  bool (*keeps_batch_whole)(const StepView&) = items_apart;
  /// The ids that it looks something up by. Where they are an input of the plan, the engine refuses others
  /// before any step runs. The runner looks at all of them: it reads and writes nothing by a bad one, and says
  /// so (RunArgs::faults).
  std::optional<IdUse> (*ids)(const StepView&) = no_ids;
  /// Of a step that continues earlier runs. Its runner is called at positions of at most capacity - rows.
  std::optional<Kept> (*kept)(const StepView&) = nothing_kept;
  /// About how many bytes prepare() will take; the engine asks first, so that a small file cannot take much.
  size_t (*prepared_bytes)(const StepView&) = packed_constants;
  /// What a run of so many items computes and moves at the least, of earlier runs nothing.
  StepWork (*work)(const StepView&, int64_t batch) = default_work;
  /// Reads the step alone: steps that are alike share what it makes.
  std::unique_ptr<Runner> (*prepare)(const StepView&, kernels::Isa);
};

/// The definition of each op of the list, in the op's own file.
namespace ops {
#define ULP_DECLARE(name, ...) extern const OpDef name;
ULP_OPS(ULP_DECLARE)
#undef ULP_DECLARE
}  // namespace ops

/// The definition of a known op.
const OpDef& op_def(Op op);
/// Nothing for a word that names no op.
std::optional<Op> op_from_word(const std::string& word);

}  // namespace ulp::runtime
