#include "ulp/kernels/common/aligned_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace ulp::kernels {
namespace {

/// A large page of the systems that have them: reading weights from memory waits less for translations of addresses, and
/// touching new memory takes one fault instead of 512.
constexpr size_t kLargePage = size_t{2} << 20;

}  // namespace

AlignedBuffer::AlignedBuffer(int64_t bytes) {
  const size_t size = static_cast<size_t>(round_up(std::max<int64_t>(bytes, 1), 64));
  const bool large = size >= kLargePage;
  void* data = nullptr;
  if (::posix_memalign(&data, large ? kLargePage : 64, size) != 0) throw std::bad_alloc();
  data_.reset(static_cast<uint8_t*>(data));
#ifdef MADV_HUGEPAGE
  // Whole pages only, so that none reaches behind the buffer. A system without them refuses, and nothing is lost.
  if (large) ::madvise(data, size / kLargePage * kLargePage, MADV_HUGEPAGE);
#endif
  std::fill_n(data_.get(), size, uint8_t{0});
}

}  // namespace ulp::kernels
