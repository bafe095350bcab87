#include "cli/checkpoint_flags.h"

#include "cli/command.h"

namespace ulp::cli {

void CheckpointFlags::add_to(CLI::App& command) {
  command.add_option("--checkpoint", path, "File that holds everything needed to continue");
  command.add_option("--checkpoint-every", every, "Steps between checkpoints (0: once an epoch)")
      ->check(not_negative())
      ->capture_default_str();
  command.add_flag("--resume", resume, "Continue from --checkpoint if the file exists");
}

void CheckpointFlags::check() const {
  if (path.empty() && (resume || every > 0)) {
    throw CLI::ValidationError("--resume and --checkpoint-every need --checkpoint FILE");
  }
}

}  // namespace ulp::cli
