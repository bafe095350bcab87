#include "ulp/kernels/isa/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "ulp/base/error.h"

namespace {

using ulp::kernels::Isa;

TEST(Isa, WordsGoThereAndBack) {
  for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::amx, Isa::amx_emulated}) {
    EXPECT_EQ(ulp::kernels::isa_from_string(ulp::kernels::to_string(isa)), isa);
  }
}

TEST(Isa, WrongWordNamesTheAcceptedOnes) {
  for (const char* word : {"avx", "AVX2", " portable", "sse"}) {
    try {
      ulp::kernels::choose_isa(word);
      FAIL() << word;
    } catch (const ulp::Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("portable"), std::string::npos) << text;
      EXPECT_NE(text.find("avx512_vnni"), std::string::npos) << text;
      EXPECT_NE(text.find(word), std::string::npos) << text;
    }
  }
}

TEST(Isa, AvailableAreBestFirstAndForceable) {
  const auto isas = ulp::kernels::available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.back(), Isa::portable);
  for (Isa isa : isas) EXPECT_EQ(ulp::kernels::choose_isa(ulp::kernels::to_string(isa)), isa);
  EXPECT_NE(ulp::kernels::best_isa(), Isa::amx_emulated);
  EXPECT_EQ(ulp::kernels::choose_isa(nullptr), ulp::kernels::best_isa());
  EXPECT_EQ(ulp::kernels::choose_isa(""), ulp::kernels::best_isa());
}

TEST(Isa, ForcingWhatTheMachineLacksIsAnError) {
  bool lacking = false;
  const auto isas = ulp::kernels::available_isas();
  for (Isa isa : {Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::amx}) {
    bool runs = false;
    for (Isa have : isas) runs = runs || have == isa;
    if (runs) continue;
    lacking = true;
    EXPECT_THROW(ulp::kernels::choose_isa(ulp::kernels::to_string(isa)), ulp::Error);
  }
  if (!lacking) GTEST_SKIP() << "this machine runs everything";
}

// The variable is read once per process, so each word needs a fresh one.
TEST(IsaDeathTest, EnvironmentForcesTheChoice) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("ULP_ISA", "portable", 1);
        std::exit(ulp::kernels::selected_isa() == Isa::portable ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        setenv("ULP_ISA", "nonsense", 1);
        try {
          ulp::kernels::selected_isa();
        } catch (const ulp::Error&) {
          std::exit(8);
        }
        std::exit(1);
      },
      ::testing::ExitedWithCode(8), "");
}

}  // namespace
