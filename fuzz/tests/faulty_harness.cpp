// A harness with one fault of each kind, for the tests of the replay program: the first byte chooses it.
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const char kind = size == 0 ? '\0' : static_cast<char>(data[0]);
  if (kind == 'x') throw std::runtime_error("not a refusal");
  if (kind == 'a') ulp::fuzz::require(false, "a fault");
  if (kind == 'm') {
    std::vector<char> large(size_t{400} << 20, 'm');
    ulp::fuzz::require(large[size] == 'm', "memory");
  }
  if (kind == 't') {
    volatile bool forever = true;
    while (forever) {
    }
  }
  return 0;
}
