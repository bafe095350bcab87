#include "ulp/amp/optimizer/training_memory.h"

#include <c10/core/CPUAllocator.h>

#include "ulp/amp/optimizer/large_pages.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace ulp::amp {

namespace {

/// LibTorch's allocator, with large pages asked for.
class LargePageAllocator final : public c10::Allocator {
 public:
  explicit LargePageAllocator(c10::Allocator& own) : own_(own) {}
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = own_.allocate(bytes);
    if (bytes >= kLargePage) {
      // The pages at both ends as well: what shares them is on the same heap and, mostly, a tensor, too.
      const auto begin = reinterpret_cast<uintptr_t>(memory.get());
      const uintptr_t from = begin / kLargePage * kLargePage;
      const uintptr_t to = (begin + bytes + kLargePage - 1) / kLargePage * kLargePage;
      ask_for_large_pages(reinterpret_cast<const void*>(from), to - from);
    }
    return memory;
  }
  bool is_simple_data_ptr(const c10::DataPtr& memory) const override {
    return own_.is_simple_data_ptr(memory);
  }
  c10::DeleterFnPtr raw_deleter() const override { return own_.raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { own_.copy_data(to, from, bytes); }

 private:
  c10::Allocator& own_;
};

bool prepare() {
#ifdef __GLIBC__
  constexpr int kTopPad = 64 << 20;  // the heap grows by so much more at a time: whole large pages
  mallopt(M_MMAP_MAX, 0);            // no mapping of its own for any block; M_MMAP_THRESHOLD has a limit
  mallopt(M_TRIM_THRESHOLD, -1);     // never
  mallopt(M_TOP_PAD, kTopPad);
#endif
#ifdef __linux__
  // Never destroyed: tensors outlive static objects.
  c10::SetCPUAllocator(new LargePageAllocator(*c10::GetCPUAllocator()));
#endif
  return true;
}

}  // namespace

void prepare_training_memory() {
  static const bool prepared = prepare();
  (void)prepared;
}

}  // namespace ulp::amp
