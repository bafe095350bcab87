// Counts every allocation of the process, in all threads, by standing in for malloc and its relatives: for one file of a
// program, which is built with hidden symbols.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0}, allocated{0};  // how many, and their bytes

void count(size_t bytes) {
  if (!counting.load(std::memory_order_relaxed)) return;
  allocations.fetch_add(1, std::memory_order_relaxed);
  allocated.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

}  // namespace

// glibc's own entry points under the names it keeps for this purpose.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

#define ULP_SHOWN __attribute__((visibility("default")))
ULP_SHOWN void* malloc(size_t bytes) {
  count(bytes);
  return __libc_malloc(bytes);
}
ULP_SHOWN void* calloc(size_t number, size_t bytes) {
  count(number * bytes);
  return __libc_calloc(number, bytes);
}
ULP_SHOWN void* realloc(void* old, size_t bytes) {
  count(bytes);
  return __libc_realloc(old, bytes);
}
ULP_SHOWN void* memalign(size_t alignment, size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}
ULP_SHOWN void* aligned_alloc(size_t alignment, size_t bytes) {
  count(bytes);
  return __libc_memalign(alignment, bytes);
}
ULP_SHOWN int posix_memalign(void** out, size_t alignment, size_t bytes) {
  count(bytes);
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? ENOMEM : 0;
}
}
