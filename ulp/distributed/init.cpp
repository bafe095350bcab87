#include "ulp/distributed/init.h"

#include <ATen/Context.h>
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/distributed/backend_group.h"
#include "ulp/distributed/first_line.h"

namespace ulp::distributed {

namespace {

using Store = c10::intrusive_ptr<c10d::Store>;
using Clock = std::chrono::steady_clock;

constexpr const char* kInitProcessGroupWhere = "distributed.init_process_group";
constexpr auto kLook = std::chrono::milliseconds(20);  // between two looks at who has come

std::string place(const InitOptions& options) {
  if (!options.file.empty()) return "'" + options.file.string() + "'";
  return options.master_address + ':' + std::to_string(options.master_port);
}

double seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// The store where the processes meet.
Store open_store(const InitOptions& options) {
  try {
    if (!options.file.empty())
      return c10::make_intrusive<c10d::FileStore>(options.file.string(), options.world_size);
    c10d::TCPStoreOptions tcp;
    tcp.port = static_cast<uint16_t>(options.master_port);
    tcp.isServer = options.rank == 0 && !options.launcher_listens;
    tcp.numWorkers = options.world_size;
    tcp.waitWorkers = false;
    tcp.timeout = options.connect_timeout;
    return c10::make_intrusive<c10d::TCPStore>(options.master_address, tcp);
  } catch (const std::exception& error) {
    if (!options.file.empty())
      fail(kInitProcessGroupWhere, "could not open ", place(options), ": ", first_line(error));
    const bool listens = options.rank == 0 && !options.launcher_listens;
    fail(kInitProcessGroupWhere, "rank ", options.rank, " of ", options.world_size, " could not ",
         listens ? "listen on " : "reach ", place(options),
         listens                    ? ""
         : options.launcher_listens ? ", where the launcher listens,"
                                    : ", where rank 0 listens,",
         " within ", seconds(options.connect_timeout), " s: ", first_line(error));
  }
}

std::string key_of(int rank) {
  return "ulp/world_size_of/" + std::to_string(rank);
}

/// "rank 2", "ranks 1, 2"
std::string listing(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

/// Throws unless `rank`, which is there, counts as many processes.
void check_world(c10d::Store& store, const InitOptions& options, int rank) {
  const auto bytes = store.get(key_of(rank));
  const std::string told(bytes.begin(), bytes.end());
  if (told == std::to_string(options.world_size)) return;
  fail(kInitProcessGroupWhere, "expected all processes to count the same number of them, got ",
       options.world_size, " in rank ", options.rank, " and ", told, " in rank ", rank);
}

/// Says who this process is, and waits until every other one has.
void meet(c10d::Store& store, const InitOptions& options) {
  const std::string number = std::to_string(options.world_size);
  if (store.add("ulp/processes_of/" + std::to_string(options.rank), 1) != 1) {
    fail(kInitProcessGroupWhere, "expected one process of each rank at ", place(options),
         ", got a second one of rank ", options.rank,
         options.file.empty() ? "" : " (or the file is one of an earlier run: remove it)");
  }
  store.set(key_of(options.rank), std::vector<uint8_t>(number.begin(), number.end()));
  std::vector<int> missing;
  for (int rank = 0; rank < options.world_size; ++rank) missing.push_back(rank);
  const auto deadline = Clock::now() + options.connect_timeout;
  while (true) {
    std::erase_if(missing, [&](int rank) {
      if (!store.check({key_of(rank)})) return false;
      check_world(store, options, rank);
      return true;
    });
    if (missing.empty()) return;
    if (Clock::now() > deadline) {
      fail(kInitProcessGroupWhere, "expected ", options.world_size, " processes at ", place(options),
           " within ", seconds(options.connect_timeout), " s, got none of ", listing(missing),
           "; this is rank ", options.rank);
    }
    std::this_thread::sleep_for(kLook);
  }
}

bool on_this_machine(const InitOptions& options) {
  return options.one_machine || options.master_address == "localhost" ||
         options.master_address.starts_with("127.") || options.master_address == "::1";
}

Transport chosen(Transport asked) {
  if (asked != Transport::automatic) return asked;
#if defined(USE_C10D_NCCL) && __has_include(<nccl.h>)
  if (at::hasCUDA()) return Transport::nccl;
#endif
  return Transport::gloo;
}

/// What is written to a process that has ended fails then, and the operation says so; by default it ends the writer.
void survive_broken_pipes() {
  struct sigaction present {};
  if (sigaction(SIGPIPE, nullptr, &present) == 0 && present.sa_handler == SIG_DFL)
    std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options) {
  options.validate();
  if (options.world_size == 1) return single_process();
  survive_broken_pipes();
  // A launcher that starts the processes again counts the starts, and its store keeps what earlier ones
  // wrote.
  const char* start = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const Store store = c10::make_intrusive<c10d::PrefixStore>(
      std::string("ulp/") + (start == nullptr ? "0" : start), open_store(options));
  try {
    meet(*store, options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(kInitProcessGroupWhere, "rank ", options.rank, " of ", options.world_size,
         " lost its connection to ", place(options), ": ", first_line(error));
  }
  const bool nccl = chosen(options.transport) == Transport::nccl;
  const BackendSetup setup{.store = store,
                           .rank = options.rank,
                           .size = options.world_size,
                           .loopback = on_this_machine(options),
                           .timeout = options.timeout};
  return group_of(nccl ? make_nccl(setup) : make_gloo(setup), store, nccl ? "nccl" : "gloo", options.timeout);
}

std::shared_ptr<ProcessGroup> init_process_group() {
  return init_process_group(InitOptions::from_environment());
}

struct MeetingPoint::State {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

namespace {

/// A socket that is bound to a free port of the loopback device: nobody else can reach it.
struct LoopbackSocket {
  int descriptor = -1;
  uint16_t port = 0;

  LoopbackSocket() : descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (descriptor < 0 || ::bind(descriptor, any, length) != 0 || ::listen(descriptor, SOMAXCONN) != 0 ||
        ::getsockname(descriptor, any, &length) != 0) {
      const int reason = errno;
      if (descriptor >= 0) ::close(descriptor);
      fail("distributed.MeetingPoint", "could not listen on 127.0.0.1: ", std::strerror(reason));
    }
    port = ntohs(address.sin_port);
  }
};

}  // namespace

MeetingPoint::MeetingPoint() : state_(std::make_unique<State>()) {
  const LoopbackSocket socket;  // the store closes it
  c10d::TCPStoreOptions options;
  options.port = socket.port;
  options.masterListenFd = socket.descriptor;
  options.isServer = true;
  options.waitWorkers = false;
  try {
    state_->store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  } catch (const std::exception& error) {
    fail("distributed.MeetingPoint", "could not listen on 127.0.0.1: ", first_line(error));
  }
}

MeetingPoint::~MeetingPoint() = default;

int MeetingPoint::port() const {
  return state_->store->getPort();
}

}  // namespace ulp::distributed
