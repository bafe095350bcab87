// A bound on the memory that LibTorch takes for tensors of this thread.
#pragma once

#include <cstdint>
#include <memory>

namespace ulp::exchange::pt2 {

/// While it lives, an allocation that would take this thread's tensors on the CPU beyond `bytes` throws FileError: what files
/// of strangers ask for is refused before the memory is touched.
class MemoryLimit {
 public:
  explicit MemoryLimit(int64_t bytes);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ulp::exchange::pt2
