#include "ulp/amp/precision.h"

#include <string>

#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

// bf16 has fp32's exponents: what does not underflow in fp32 does not underflow in bf16.
constexpr Precision kPrecisions[] = {
    {"fp32", std::nullopt, false},
    {"bf16", c10::kBFloat16, false},
    {"fp16", c10::kHalf, true},
};

}  // namespace

std::span<const Precision> precisions() {
  return kPrecisions;
}

const Precision& find_precision(std::string_view name) {
  std::string known;
  for (const Precision& precision : kPrecisions) {
    if (precision.name == name) return precision;
    known.append(known.empty() ? "" : ", ").append(precision.name);
  }
  fail("amp.find_precision", "expected one of ", known, ", got '", name, "'");
}

}  // namespace ulp::amp
