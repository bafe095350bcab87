#include "ulp/app/train/memory_plan.h"

#include <charconv>

#include "ulp/base/anonymous_file.h"
#include "ulp/base/byte_size.h"
#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/base/fields_json.h"
#include "ulp/train/train_options.h"

namespace ulp::app {

namespace {

using memory::StorageLocation;

constexpr const char* kMemoryPlanWhere = "app.MemoryPlan";
constexpr std::string_view kEvery = "every:", kBytes = "bytes:";

std::optional<int64_t> positive_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{} || end != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

/// A host that is none: there is no other device.
std::optional<FieldConflict> no_host(const char* field, StorageLocation place) {
  if (place != StorageLocation::host) return std::nullopt;
  const std::string name = std::string("{") + field + '=';
  return FieldConflict{
      name + "host} is for a model on a GPU, and this trains on the CPU, whose memory the host's is; " +
      name + "file} needs less of it"};
}

}  // namespace

std::string CheckpointRule::text() const {
  switch (kind) {
    case Kind::sqrt:
      return "sqrt";
    case Kind::every:
      return std::string(kEvery) + std::to_string(number);
    case Kind::bytes:
      return std::string(kBytes) + ByteSize{number}.text();
    case Kind::none:
      break;
  }
  return "none";
}

std::optional<CheckpointRule> CheckpointRule::from_text(std::string_view text) {
  if (text == "none") return CheckpointRule{};
  if (text == "sqrt") return CheckpointRule{.kind = Kind::sqrt};
  if (text.starts_with(kEvery)) {
    const auto calls = positive_number(text.substr(kEvery.size()));
    if (calls) return CheckpointRule{.kind = Kind::every, .number = *calls};
  }
  if (text.starts_with(kBytes)) {
    const auto size = ByteSize::from_text(text.substr(kBytes.size()));
    if (size) return CheckpointRule{.kind = Kind::bytes, .number = size->bytes};
  }
  return std::nullopt;
}

void MemoryPlan::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "checkpoint_activations",
           .help = "Compute activations again in the backward pass, for the same gradients: sqrt of the "
                   "network's calls to a "
                   "segment, every:K calls, or what takes least time within bytes:SIZE of activations"},
          checkpoint_activations);
  visitor(
      {.name = "activations",
       .help =
           "Format of activations that are kept for the backward pass; others than exact change gradients"},
      activations);
  visitor({.name = "activation_masks",
           .help = "Keep one bit of an activation where the backward pass asks no more (ReLU, dropout)"},
          activation_masks);
  visitor({.name = "offload_activations",
           .help = "Where activations are kept: memory, or a file, written and read beside the work"},
          offload_activations);
  visitor({.name = "offload_optimizer",
           .help = "Where masters, momentum and moments are kept: memory, or files mapped into it"},
          offload_optimizer);
  visitor({.name = "offload_folder",
           .help = "Folder of these files, which have no names and go with the run",
           .keep_empty = false,
           .unset = "that of temporary files"},
          offload_folder);
}

memory::SavedOptions MemoryPlan::saved(uint64_t seed) const {
  return {.format = activations,
          .masks = activation_masks,
          .place = offload_activations,
          .folder = offload_folder,
          .seed = seed};
}

std::optional<FieldConflict> MemoryPlan::conflict() const {
  if (auto found = no_host("offload_activations", offload_activations)) return found;
  if (auto found = no_host("offload_optimizer", offload_optimizer)) return found;
  if (is_lossy() && checkpoint_activations.kind == CheckpointRule::Kind::bytes) {
    return FieldConflict{
        std::string("{activations=") + enum_name(activations) +
        "} and {checkpoint_activations=" + checkpoint_activations.text() +
        "} exclude each other: the bytes are those of exact values, and what is rounded would "
        "depend on times that are measured; sqrt and every:K go with it"};
  }
  if (!offload_folder.empty() && offload_activations == StorageLocation::memory &&
      offload_optimizer == StorageLocation::memory)
    return FieldConflict{"{offload_folder} is for {offload_activations=file} and {offload_optimizer=file}"};
  return std::nullopt;
}

std::optional<FieldConflict> MemoryPlan::conflict_with(const train::TrainOptions& options) const {
  const bool bare = options.resolved_precision().parameter_dtype && !options.master_weights();
  if (offload_optimizer == StorageLocation::memory || !bare) return std::nullopt;
  return FieldConflict{std::string("{offload_optimizer=") + enum_name(offload_optimizer) +
                       "} needs {masters} beside {precision=" + options.precision.name() +
                       "}: without them LibTorch makes the step and keeps its state"};
}

void MemoryPlan::validate() const {
  if (const auto found = conflict()) fail(ErrorCode::bad_option, kMemoryPlanWhere, found->text());
  if (offload_activations == StorageLocation::file || offload_optimizer == StorageLocation::file)
    const AnonymousFile probe(kMemoryPlanWhere, offload_folder);
}

std::string MemoryPlan::to_json() const {
  if (!is_lossy()) return {};
  constexpr const char* kLossy[] = {"checkpoint_activations", "activations", "activation_masks"};
  MemoryPlan copy = *this;
  return fields_to_json([&](FieldVisitor& visitor) {
           visit_some(visitor, kLossy, [&](FieldVisitor& some) { copy.visit_fields(some); });
         })
      .dump();
}

}  // namespace ulp::app
