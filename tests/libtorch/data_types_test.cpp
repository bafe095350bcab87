#include "ulp/libtorch/data_types.h"

#include <gtest/gtest.h>

#include <string>

namespace ulp::libtorch {
namespace {

TEST(DataTypes, EveryRowOfTheTableHasATypeOfItsSizeAndBack) {
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = static_cast<DataType>(i);
    SCOPED_TRACE(to_string(type));
    const std::optional<c10::ScalarType> theirs = scalar_type_of(type);
    ASSERT_TRUE(theirs);
    EXPECT_EQ(static_cast<int64_t>(c10::elementSize(*theirs)), element_bytes(type));
    EXPECT_EQ(data_type_of(*theirs), type);
    EXPECT_EQ(c10::isFloatingType(*theirs), std::string("fb").find(to_string(type)[0]) != std::string::npos);
  }
}

TEST(DataTypes, WhatHasNoPairIsNothing) {
  EXPECT_FALSE(data_type_of(c10::kComplexFloat));
  EXPECT_FALSE(data_type_of(c10::kFloat8_e4m3fn));
  EXPECT_FALSE(data_type_of(c10::kBool));
  EXPECT_FALSE(scalar_type_of(static_cast<DataType>(kDataTypeCount)));
}

}  // namespace
}  // namespace ulp::libtorch
