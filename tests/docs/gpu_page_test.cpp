// The sample of docs/gpu.md: on processors nothing is measured, and nothing is said.
#include <gtest/gtest.h>

#include <sstream>

#include "gpu/fp8_product_choices.includes.h"

namespace {

TEST(GpuPage, ProductsOnProcessorsAreEmulated) {
  std::ostringstream text;
  std::streambuf* const shown = std::cout.rdbuf(text.rdbuf());
#include "gpu/fp8_product_choices.inc"
  std::cout.rdbuf(shown);
  EXPECT_EQ(text.str(), "");
}

}  // namespace
