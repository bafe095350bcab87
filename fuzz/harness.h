// What a harness is made of. A harness is one file, harness/<name>.cpp, with the functions that libFuzzer calls;
// replay.cpp calls the same ones without libFuzzer.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>

#include "ulp/base/error.h"

extern "C" {
/// Reads the bytes as a file of the harness's kind. Whatever is no refusal by ulp::FileError is a finding: a
/// crash, another exception, too much memory or time.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
/// Changes the bytes in place; returns the new size. A harness without one gets changes of bytes.
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                                     unsigned int seed);
/// Changes of bytes: libFuzzer's own, or those of byte_mutator.cpp.
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
}

namespace ulp::fuzz {

/// A regular file that is in memory alone.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : descriptor_(::memfd_create("input", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::runtime_error("memfd_create failed");
    for (size_t at = 0; at < size;) {
      const ssize_t wrote = ::write(descriptor_, data + at, size - at);
      if (wrote <= 0) throw std::runtime_error("could not write a file in memory");
      at += static_cast<size_t>(wrote);
    }
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

/// True where the call throws a `Refusal`. Any other exception passes and ends the process.
template <typename Refusal = FileError, typename Call>
bool refused(const Call& call) {
  try {
    call();
    return false;
  } catch (const Refusal&) {
    return true;
  }
}

/// Makes a finding of what is not true.
inline void require(bool condition, const char* what) {
  if (condition) return;
  std::cerr << "expected " << what << '\n';
  std::abort();
}

}  // namespace ulp::fuzz
