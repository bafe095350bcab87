// Starting the processes of a run on this machine, and ending all of them when one dies.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::app {

/// What is to be started.
struct LaunchOptions {
  int processes = 2;                 ///< >= 1
  std::vector<std::string> command;  ///< program and arguments
  std::chrono::milliseconds grace =
      std::chrono::seconds(5);  ///< from asking the others to end to killing them
};

/// How a run ended.
struct LaunchResult {
  int code =
      0;  ///< 0; else of the process that died first: its exit code, or 128 + its signal; 130 after Ctrl-C
  std::string what =
      {};  ///< "rank 1 (process 4711) was killed by signal 9 (Killed)"; empty where all ended well
};

/// Runs the command as so many processes with torchrun's variables: RANK, LOCAL_RANK, WORLD_SIZE,
/// LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, where this process listens (TORCHELASTIC_USE_AGENT_STORE).
/// OMP_NUM_THREADS is set to a share of the cores where it is not set. Each line that a process prints comes
/// out behind "[rank] ". The first Ctrl-C (SIGINT, SIGTERM) is passed on and what the processes make of it is
/// waited for; a second one kills them. Returns when all have ended. Throws ulp::Error for a bad number of
/// processes and for a command that cannot be started.
ULP_API LaunchResult launch(const LaunchOptions& options);

}  // namespace ulp::app
