// NumPy's files of one array.
#include "ulp/io/npy.h"

#include "array.h"
#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ulp::fuzz::MemoryFile file(data, size);
  ulp::fuzz::refused([&] { ulp::fuzz::read_all(ulp::io::load_npy(file.path())); });
  return 0;
}
