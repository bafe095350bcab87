#include "ulp/amp/training_memory.h"

#include <c10/core/CPUAllocator.h>

#include <climits>

#include "ulp/amp/large_pages.h"

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
    ask_for_large_pages(memory.get(), bytes);
    return memory;
  }
  c10::DeleterFnPtr raw_deleter() const override { return own_.raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { own_.copy_data(to, from, bytes); }

 private:
  c10::Allocator& own_;
};

bool prepare() {
#ifdef __GLIBC__
  constexpr int kTopPad = 64 << 20;
  mallopt(M_MMAP_THRESHOLD, INT_MAX);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
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
