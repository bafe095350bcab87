// The table of element types against the table of number formats.
#include "ulp/formats/data_type.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ulp/formats/format.h"

namespace ulp {
namespace {

TEST(DataType, EachRowHasTheBitsOfItsFormat) {
  for (int i = 0; i < kDataTypeCount; ++i) {
    const DataTypeInfo& row = kDataTypes[i];
    SCOPED_TRACE(row.name);
    EXPECT_EQ(element_bytes(static_cast<DataType>(i)), row.bytes);
    if (*row.format == '\0') continue;
    EXPECT_EQ(formats::find(row.format).bits(), 8 * row.bytes);
  }
}

TEST(DataType, EachRowHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int i = 0; i < kDataTypeCount; ++i) {
    EXPECT_TRUE(is_known(static_cast<DataType>(i)));
    EXPECT_TRUE(names.insert(to_string(static_cast<DataType>(i))).second) << kDataTypes[i].name;
  }
  EXPECT_STREQ(to_string(DataType::bf16), "bf16");
}

TEST(DataType, NumbersBeyondTheTableAreUnknown) {
  for (const int number : {kDataTypeCount, 255}) {
    const auto type = static_cast<DataType>(number);
    EXPECT_FALSE(is_known(type));
    EXPECT_STREQ(to_string(type), "unknown");
    EXPECT_EQ(element_bytes(type), 0);
  }
}

}  // namespace
}  // namespace ulp
