// IDX files, plain or packed with gzip.
#include "array.h"
#include "harness.h"
#include "ulp/io/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ulp::fuzz::MemoryFile file(data, size);
  ulp::fuzz::refused([&] { ulp::fuzz::read_all(ulp::io::read_idx(file.path())); });
  return 0;
}
