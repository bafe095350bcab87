// The memory an engine computes in. Internal to the room.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>

#include "ulp/base/error.h"
#include "ulp/runtime/engine/arena.h"

namespace ulp::runtime {

/// Aligned memory that only grows. Large blocks ask for huge pages: an arena is touched end to end on every
/// run.
class Block {
 public:
  Block() = default;
  ~Block() { std::free(data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  size_t bytes() const { return bytes_; }
  std::byte* data() const { return data_; }

  void grow(size_t bytes) {
    if (bytes <= bytes_) return;
    constexpr size_t kHuge = size_t{2} << 20;
    const size_t alignment = bytes >= kHuge ? kHuge : kArenaAlignment;
    std::free(data_);
    data_ = nullptr;
    bytes_ = 0;
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
    if (data_ == nullptr) fail("runtime.Engine", "could not allocate ", bytes, " bytes for intermediates");
    if (alignment == kHuge) ::madvise(data_, rounded, MADV_HUGEPAGE);
    bytes_ = rounded;
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace ulp::runtime
