// The casts against ml_dtypes' (tests/golden/make_formats.py): every value of the formats up to 8 bits, and a
// sample of fp32 numbers.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "ulp/formats/convert.h"

namespace {

using namespace ulp::formats;

TEST(Golden, MlDtypesAgrees) {
  std::ifstream file(ULP_SOURCE_DIR "/tests/golden/formats.json");
  const auto golden = nlohmann::json::parse(file)["formats"];
  ASSERT_GE(golden.size(), 9u);
  for (const auto& [name, entry] : golden.items()) {
    const Format& format = find(name);
    ASSERT_GT(entry["input"].size(), 250u);
    for (size_t i = 0; i < entry["input"].size(); ++i) {
      const float x = std::bit_cast<float>(entry["input"][i].get<uint32_t>());
      ASSERT_EQ(encode(format, x), entry["code"][i].get<uint64_t>()) << name << " " << x;
    }
    if (format.bits() > 8) continue;
    ASSERT_EQ(entry["value"].size(), size_t{1} << format.bits());
    for (uint64_t code = 0; code < entry["value"].size(); ++code) {
      const double theirs = std::strtod(entry["value"][code].get<std::string>().c_str(), nullptr);
      const double ours = decode(format, code);
      ASSERT_TRUE(ours == theirs || (std::isnan(ours) && std::isnan(theirs))) << name << " " << code;
    }
  }
}

}  // namespace
