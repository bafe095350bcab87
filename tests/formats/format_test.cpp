#include "ulp/formats/format.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "ulp/base/error.h"

namespace {

using namespace ulp::formats;

template <typename T>
void expect_matches_limits(const Format& format) {
  using Limits = std::numeric_limits<T>;
  EXPECT_EQ(format.bits(), static_cast<int>(sizeof(T) * 8));
  EXPECT_EQ(format.max(), Limits::max());
  EXPECT_EQ(format.lowest(), Limits::lowest());
  EXPECT_EQ(format.decimal_digits(), Limits::digits10);
  if constexpr (!Limits::is_integer) {
    EXPECT_EQ(format.smallest_normal(), Limits::min());
    EXPECT_EQ(format.smallest_subnormal(), Limits::denorm_min());
    EXPECT_EQ(format.epsilon(), Limits::epsilon());
  }
}

TEST(Format, AgreesWithTheTypesOfTheLanguage) {
  expect_matches_limits<double>(find("fp64"));
  expect_matches_limits<float>(find("fp32"));
  expect_matches_limits<int8_t>(find("int8"));
}

// Published figures, typed from the specifications: IEEE 754 binary16, OCP OFP8, OCP MX, NVIDIA's TF32,
// LibTorch's finfo.
TEST(Format, AgreesWithThePublishedFigures) {
  struct Published {
    const char* name;
    int bits, bias, digits;
    double max, normal, subnormal, epsilon;
  };
  const Published published[] = {
      {"tf32", 19, 127, 3, 3.4011621342146535e38, 1.1754943508222875e-38, 1.1479437019748901e-41,
       0.0009765625},
      {"bf16", 16, 127, 2, 3.3895313892515355e38, 1.1754943508222875e-38, 9.183549615799121e-41, 0.0078125},
      {"fp16", 16, 15, 3, 65504, 6.103515625e-05, 5.960464477539063e-08, 0.0009765625},
      {"fp8_e4m3fn", 8, 7, 0, 448, 0.015625, 0.001953125, 0.125},
      {"fp8_e4m3fnuz", 8, 8, 0, 240, 0.0078125, 0.0009765625, 0.125},
      {"fp8_e4m3", 8, 7, 0, 240, 0.015625, 0.001953125, 0.125},
      {"fp8_e5m2", 8, 15, 0, 57344, 6.103515625e-05, 1.52587890625e-05, 0.25},
      {"fp8_e5m2fnuz", 8, 16, 0, 57344, 3.0517578125e-05, 7.62939453125e-06, 0.25},
      {"fp6_e2m3", 6, 1, 0, 7.5, 1, 0.125, 0.125},
      {"fp6_e3m2", 6, 3, 0, 28, 0.25, 0.0625, 0.25},
      {"fp4_e2m1", 4, 1, 0, 6, 1, 0.5, 0.5},
      {"e8m0", 8, 127, 0, 1.7014118346046923e38, 5.877471754111438e-39, 0, 1},
      {"int4", 4, 0, 0, 7, 1, 0, 1},
      {"int2", 2, 0, 0, 1, 1, 0, 1},
      {"binary", 1, 0, 0, 1, 1, 0, 2},
  };
  for (const Published& row : published) {
    SCOPED_TRACE(row.name);
    const Format& format = find(row.name);
    EXPECT_EQ(format.bits(), row.bits);
    EXPECT_EQ(format.bias(), row.bias);
    EXPECT_EQ(format.decimal_digits(), row.digits);
    EXPECT_EQ(format.max(), row.max);
    EXPECT_EQ(format.smallest_normal(), row.normal);
    EXPECT_EQ(format.smallest_subnormal(), row.subnormal);
    EXPECT_EQ(format.epsilon(), row.epsilon);
  }
  EXPECT_EQ(find("int4").lowest(), -8);
  EXPECT_EQ(find("int2").lowest(), -2);
  EXPECT_EQ(find("binary").lowest(), -1);
  EXPECT_EQ(find("fp4_e2m1").lowest(), -6);
  EXPECT_EQ(find("e8m0").lowest(), 0);
  EXPECT_EQ(find("tf32").stored_bits(), 32);
  EXPECT_EQ(find("bf16").stored_bits(), 16);
}

TEST(Format, NamesAreUniqueAndFoundWithAndWithoutThePrefix) {
  for (const Format& format : all()) EXPECT_EQ(&find(format.name), &format);
  EXPECT_EQ(&find("e4m3"), &find("fp8_e4m3"));
  EXPECT_EQ(&find("e5m2fnuz"), &find("fp8_e5m2fnuz"));
  EXPECT_EQ(&find("e2m3"), &find("fp6_e2m3"));
  EXPECT_EQ(&find("e2m1"), &find("fp4_e2m1"));
}

TEST(Format, AnUnknownNameListsTheKnownOnes) {
  for (const char* name : {"fp12", "", "fp8_bf16", "FP16", "e2m", "fp4_", "mxfp4"}) {
    try {
      find(name);
      FAIL() << "no error for '" << name << "'";
    } catch (const ulp::Error& error) {
      const std::string what = error.what();
      for (const Format& format : all()) EXPECT_NE(what.find(format.name), std::string::npos) << what;
      EXPECT_NE(what.find("got '" + std::string(name) + "'"), std::string::npos) << what;
    }
  }
}

TEST(Format, CodesOfAbsentSpecialsAreErrors) {
  EXPECT_THROW(find("e4m3fn").infinity_code(), ulp::Error);
  EXPECT_THROW(find("int8").nan_code(), ulp::Error);
  EXPECT_THROW(find("fp4_e2m1").nan_code(), ulp::Error);
}

TEST(Format, TheTableHasARowForEachFormat) {
  const Table table = formats_table();
  ASSERT_EQ(table.rows.size(), all().size());
  for (size_t i = 0; i < table.rows.size(); ++i) {
    EXPECT_EQ(table.rows[i].size(), table.header.size());
    EXPECT_EQ(table.rows[i][0], all()[i].name);
  }
  const std::vector<std::string> fp16{"fp16",        "16",    "5",           "10",
                                      "15",          "65504", "6.10352e-05", "5.96046e-08",
                                      "0.000976562", "3",     "inf, NaN",    "to inf"};
  EXPECT_EQ(table.rows[4], fp16);
}

}  // namespace
