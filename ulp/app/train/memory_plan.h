// Options for the memory of a training run beside its parameters, in `ulp train` and
// `ulp memory`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ulp/base/export.h"
#include "ulp/memory/saved/saved_options.h"

namespace ulp {
class FieldVisitor;
struct FieldConflict;
}  // namespace ulp

namespace ulp::train {
struct TrainOptions;
}

namespace ulp::app {

/// Which activations are computed again in the backward pass instead of being kept.
struct ULP_API CheckpointRule {
  enum class Kind {
    none,
    sqrt,   ///< memory::plan_sqrt()
    every,  ///< memory::plan_every() with `number` calls
    bytes   ///< memory::plan_for_budget() with `number` bytes
  };
  /// Describes the texts that from_text() reads, for messages.
  static constexpr const char* kExpected =
      "none, sqrt, every:K with K calls to a segment, or bytes:SIZE, as bytes:2GiB";

  Kind kind = Kind::none;
  int64_t number = 0;

  /// "none", "sqrt", "every:8", "bytes:2GiB".
  std::string text() const;
  /// The rule of a text, or nothing.
  static std::optional<CheckpointRule> from_text(std::string_view text);
  bool operator==(const CheckpointRule&) const = default;
};

/// How a run saves memory at the cost of time. All but `activations` leaves every number as it is.
struct ULP_API MemoryPlan {
  CheckpointRule checkpoint_activations = {};
  memory::SavedFormat activations = memory::SavedFormat::exact;  ///< others change gradients
  bool activation_masks = false;                                 ///< memory::SavedOptions::masks
  memory::StorageLocation offload_activations = memory::StorageLocation::memory;
  memory::StorageLocation offload_optimizer = memory::StorageLocation::memory;
  std::string offload_folder = {};  ///< of files; empty: that of temporary files

  /// Every field with its help and its flag.
  void visit_fields(FieldVisitor& visitor);

  bool plans_activations() const { return checkpoint_activations != CheckpointRule{} || saved(0).active(); }
  /// Whether gradients are others than without it.
  bool is_lossy() const { return activations != memory::SavedFormat::exact; }
  /// How what stays is kept; `seed` is that of the run.
  memory::SavedOptions saved(uint64_t seed) const;
  /// Two fields that do not go together; nothing where all is well. Training is on the CPU.
  std::optional<FieldConflict> conflict() const;
  /// Why it does not go with a run of these options, a sentence for FieldConflict of both structs.
  std::optional<FieldConflict> conflict_with(const train::TrainOptions& options) const;
  /// Throws ulp::Error for a conflict(), and FileError for a folder that takes no file.
  void validate() const;
  /// The options that a continued run must share, as JSON; empty where every number is that of a run without
  /// a plan.
  std::string to_json() const;
};

}  // namespace ulp::app
