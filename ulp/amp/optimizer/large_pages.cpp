#include "ulp/amp/optimizer/large_pages.h"

#include <ATen/Functions.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace ulp::amp {

void ask_for_large_pages([[maybe_unused]] const void* memory, [[maybe_unused]] size_t bytes) {
#ifdef __linux__
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t from = (begin + kLargePage - 1) / kLargePage * kLargePage;
  const uintptr_t to = (begin + bytes) / kLargePage * kLargePage;
  // Advice: a kernel that does not take it changes nothing, and holes in the range are passed over.
  if (from < to) (void)madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#endif
}

at::Tensor zeros_on_large_pages(const at::Tensor& like, c10::ScalarType type) {
  at::Tensor tensor = at::empty_like(like, like.options().dtype(type).device(c10::kCPU).requires_grad(false));
  ask_for_large_pages(tensor.mutable_data_ptr(), tensor.nbytes());  // before the memory is touched
  return tensor.zero_();
}

}  // namespace ulp::amp
