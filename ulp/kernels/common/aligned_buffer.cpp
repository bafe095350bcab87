#include "ulp/kernels/common/aligned_buffer.h"

#include <algorithm>
#include <new>

namespace ulp::kernels {

AlignedBuffer::AlignedBuffer(int64_t bytes) {
  const size_t size = static_cast<size_t>(round_up(std::max<int64_t>(bytes, 1), 64));
  data_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, size)));
  if (!data_) throw std::bad_alloc();
  std::fill_n(data_.get(), size, uint8_t{0});
}

}  // namespace ulp::kernels
