// How the processes of a run find one another: the variables of torchrun and of `ulp launch`, or a file.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/distributed/process_group.h"

namespace ulp::distributed {

/// The backend that exchanges the tensors.
enum class Transport {
  automatic,  ///< NCCL for programs that train on a GPU and were built with it, else Gloo
  gloo,       ///< tensors on the CPU
  nccl        ///< tensors on the GPU that is current
};

/// Who a process is among the processes of a run, and where they meet.
struct ULP_API InitOptions {
  int rank = 0;        ///< RANK
  int world_size = 1;  ///< WORLD_SIZE
  int local_rank = 0;  ///< LOCAL_RANK: which of its machine's processes it is
  /// MASTER_ADDR and MASTER_PORT: where rank 0 listens, or the launcher where it says so (torchrun's
  /// TORCHELASTIC_USE_AGENT_STORE).
  std::string master_address = {};
  int master_port = 0;
  bool launcher_listens = false;
  /// Instead of an address: a file on a file system that all processes share, not there yet when the first
  /// one comes.
  std::filesystem::path file = {};
  /// All processes are on this machine and talk over its loopback device, as they do where master_address is
  /// 127.0.0.1.
  bool one_machine = false;
  Transport transport = Transport::automatic;
  /// How long a process waits for the others: at the begin, and in each operation. ULP_DISTRIBUTED_TIMEOUT
  /// (in seconds) sets both.
  std::chrono::milliseconds connect_timeout = std::chrono::minutes(5);
  std::chrono::milliseconds timeout = std::chrono::minutes(30);

  /// Reads the variables; without RANK and WORLD_SIZE it is a single process. Throws ulp::Error naming a
  /// variable that is missing beside others, or is no number of its range.
  static InitOptions from_environment();
  /// Throws ulp::Error naming the option.
  void validate() const;
};

/// Meets the other processes. A group of one is single_process() and needs no address. Throws ulp::Error when
/// another rank does not come in time (it names the ranks), when two processes have the same rank, or when
/// another one counts another number of processes. Where SIGPIPE has its default action it is ignored from then on, so that
/// a process whose partner ended gets an error and does not end, too.
ULP_API std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options);
/// With from_environment().
ULP_API std::shared_ptr<ProcessGroup> init_process_group();

/// Where processes meet when the one that starts them listens for them, on a free port of this machine. It
/// must live as long as they do.
class ULP_API MeetingPoint {
 public:
  /// Throws ulp::Error when it cannot listen.
  MeetingPoint();
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;
  int port() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::distributed

template <>
struct ulp::EnumNames<ulp::distributed::Transport> {
  using enum distributed::Transport;
  static constexpr std::array<Word<distributed::Transport>, 3> list = {
      {{automatic, "automatic"}, {gloo, "gloo"}, {nccl, "nccl"}}};
};
