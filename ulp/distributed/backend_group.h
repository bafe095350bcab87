// A process group over any backend of LibTorch's c10d; internal to the room.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>

#include "ulp/distributed/process_group.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace ulp::distributed {

/// What a backend is made from.
struct BackendSetup {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0, size = 1;
  bool loopback = false;  ///< all processes are on this machine
  std::chrono::milliseconds timeout{};
};

/// Gloo, for tensors on the CPU. Throws ulp::Error where this LibTorch has none.
c10::intrusive_ptr<c10d::Backend> make_gloo(const BackendSetup& setup);
/// NCCL, for tensors on the GPU that is current. Throws ulp::Error where ulp was built without it.
c10::intrusive_ptr<c10d::Backend> make_nccl(const BackendSetup& setup);

/// The group of a backend.
std::shared_ptr<ProcessGroup> group_of(c10::intrusive_ptr<c10d::Backend> backend,
                                       c10::intrusive_ptr<c10d::Store> store, const char* transport,
                                       std::chrono::milliseconds timeout);

}  // namespace ulp::distributed
