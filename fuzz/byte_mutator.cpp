#include "byte_mutator.h"

#include <algorithm>
#include <cstring>

#include "harness.h"
#include "json_mutator.h"

namespace {

ulp::fuzz::Random& generator() {
  static ulp::fuzz::Random random;
  return random;
}

}  // namespace

namespace ulp::fuzz {

void seed_byte_mutator(unsigned int seed) {
  generator().seed(seed);
}

}  // namespace ulp::fuzz

size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size) {
  using ulp::fuzz::below;
  ulp::fuzz::Random& random = generator();
  const auto any = [&] { return static_cast<uint8_t>(random()); };
  if (size == 0) {
    if (max_size == 0) return 0;
    data[0] = any();
    return 1;
  }
  const size_t at = below(random, size);
  const size_t length = 1 + below(random, std::min<size_t>(size - at, 16));
  switch (below(random, 6)) {
    case 0:
      data[at] = static_cast<uint8_t>(data[at] ^ (1U << below(random, 8)));
      return size;
    case 1:
      data[at] = any();
      return size;
    case 2:
      std::memset(data + at, below(random, 2) == 0 ? 0 : 255, length);
      return size;
    case 3:  // cut out
      std::memmove(data + at, data + at + length, size - at - length);
      return size - length;
    case 4:  // say twice
      if (size + length > max_size) return size;
      std::memmove(data + at + length, data + at, size - at);
      return size + length;
    default:  // copy from elsewhere
      std::memmove(data + below(random, size - length + 1), data + at, length);
      return size;
  }
}
