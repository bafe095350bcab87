// A recording of the memory of a training run: every storage with its size, its life, who asked for it and
// what it was for.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/base/parallel.h"

namespace ulp::memory {

/// The phase of a run.
enum class Phase : uint8_t {
  setup,     ///< making the model and its optimizer
  data,      ///< bringing a batch
  forward,   ///< the model and its loss
  backward,  ///< gradients
  step,      ///< the optimizer's update
  after      ///< what follows the steps: evaluation
};

/// The purpose of a storage.
enum class Category : uint8_t {
  parameters,   ///< and buffers
  gradients,    ///< of parameters
  optimizer,    ///< states and masters
  activations,  ///< what forward leaves for backward
  casts,        ///< parameters that autocast has cast
  inputs,       ///< batches
  workspace     ///< gone within its phase
};
inline constexpr size_t kCategories = 7;
/// Bytes of each category, in the order of the enumerators.
using CategoryBytes = std::array<int64_t, kCategories>;

/// Who asked for memory.
struct CallSite {
  Phase phase = Phase::setup;
  std::string op = {};  ///< the outermost op, "aten::linear"; in backward the autograd node, "AddmmBackward0"
  std::string scope = {};  ///< the module whose parameters were read last: at the op, or before it
  bool operator==(const CallSite&) const = default;
};
/// "forward, aten::softmax at encoder.layer.3".
ULP_API std::string describe(const CallSite& place);

/// When: after so many allocations of a run, and all those before it.
struct Moment {
  int32_t run = 0;
  int32_t allocations = 0;
  auto operator<=>(const Moment&) const = default;
};

/// One storage.
struct Life {
  int64_t bytes = 0;
  Moment begin = {};               ///< before its own allocation
  std::optional<Moment> end = {};  ///< nothing: it outlived the recording
  Category category = Category::workspace;
  bool within_run() const { return end && end->run == begin.run; }
};

/// The memory events of a program. It is divided into runs: one an op, one what happens between two ops, so
/// that a program has the same runs at every size.
struct ULP_API Recording {
  std::vector<CallSite> places = {};
  std::vector<int32_t> runs = {};  ///< the place of each
  std::vector<Life> lives = {};    ///< in the order in which they began

  const CallSite& call_site_of(int32_t run) const {
    return places[static_cast<size_t>(runs[static_cast<size_t>(run)])];
  }
  /// The most bytes that lived at once.
  int64_t peak_bytes() const;
};

/// Tells the storages of a recording in order of time: with true when one begins, with false when it ends.
ULP_API void replay(const Recording& recording, FunctionRef<void(const Life& life, bool begins)> tell);

}  // namespace ulp::memory

template <>
struct ulp::EnumNames<ulp::memory::Phase> {
  using enum memory::Phase;
  static constexpr std::array<Word<memory::Phase>, 6> list = {{{setup, "setup"},
                                                               {data, "data"},
                                                               {forward, "forward"},
                                                               {backward, "backward"},
                                                               {step, "step"},
                                                               {after, "after"}}};
};

template <>
struct ulp::EnumNames<ulp::memory::Category> {
  using enum memory::Category;
  static constexpr std::array<Word<memory::Category>, ulp::memory::kCategories> list = {
      {{parameters, "parameters"},
       {gradients, "gradients"},
       {optimizer, "optimizer states"},
       {activations, "activations"},
       {casts, "casts of weights"},
       {inputs, "inputs"},
       {workspace, "workspace"}}};
};
