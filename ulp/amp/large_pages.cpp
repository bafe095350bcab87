#include "ulp/amp/large_pages.h"

#include <ATen/Functions.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace ulp::amp {

namespace {

constexpr uintptr_t kLargePage = uintptr_t{1} << 21;

void ask_for_large_pages([[maybe_unused]] const at::Tensor& tensor) {
#ifdef __linux__
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const uintptr_t from = (begin + kLargePage - 1) & ~(kLargePage - 1);
  const uintptr_t to = (begin + tensor.nbytes()) & ~(kLargePage - 1);
  // Advice: a kernel that does not take it changes nothing.
  if (from < to) (void)madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#endif
}

}  // namespace

at::Tensor zeros_on_large_pages(const at::Tensor& like, c10::ScalarType type) {
  at::Tensor tensor = at::empty_like(like, like.options().dtype(type).requires_grad(false));
  ask_for_large_pages(tensor);  // before the memory is touched
  return tensor.zero_();
}

}  // namespace ulp::amp
