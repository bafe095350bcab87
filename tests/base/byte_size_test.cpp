#include "ulp/base/byte_size.h"

#include <gtest/gtest.h>

namespace {

using ulp::ByteSize;

TEST(ByteSize, ReadsNumbersWithUnits) {
  const auto bytes = [](const char* text) { return ByteSize::from_text(text).value_or(ByteSize{-1}).bytes; };
  EXPECT_EQ(bytes("12GiB"), int64_t{12} << 30);
  EXPECT_EQ(bytes("1.5 gib"), int64_t{3} << 29);
  EXPECT_EQ(bytes("800MB"), 800'000'000);
  EXPECT_EQ(bytes("4096"), 4096);
  EXPECT_EQ(bytes("7b"), 7);
  EXPECT_EQ(bytes("2KiB"), 2048);
  for (const char* wrong :
       {"", "GiB", "12 apples", "-1GiB", "0", "nan", "inf", "1e30", "0.2", "12GiB ", " 12GiB", "4EiB"})
    EXPECT_EQ(bytes(wrong), -1) << wrong;
}

TEST(ByteSize, WritesTheShortestExactText) {
  EXPECT_EQ(ByteSize{int64_t{12} << 30}.text(), "12GiB");
  EXPECT_EQ(ByteSize{1536}.text(), "1536");
  EXPECT_EQ(ByteSize{int64_t{5} << 20}.text(), "5MiB");
  for (const int64_t bytes : {1L, 1023L, 1024L, 3L << 40})
    EXPECT_EQ(ByteSize::from_text(ByteSize{bytes}.text()), ByteSize{bytes});
}

}  // namespace
