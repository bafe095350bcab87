#include "ulp/kernels/isa/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "ulp/base/error.h"
#include "ulp/kernels/isa/dispatch.h"

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

TEST(Isa, AdmitsWhatItIncludesAndTheMachineRuns) {
  using ulp::kernels::admits;
  const auto isas = ulp::kernels::available_isas();
  const bool vnni = std::find(isas.begin(), isas.end(), Isa::avx512_vnni) != isas.end();
  for (Isa isa : isas) {
    EXPECT_TRUE(admits(isa, isa));
    EXPECT_TRUE(admits(isa, Isa::portable));
    EXPECT_EQ(admits(Isa::portable, isa), isa == Isa::portable);
    // The emulation runs beside the instructions of AVX-512, so what it adds to them is up to the machine.
    const bool wide = isa == Isa::avx512_vnni || isa == Isa::amx || isa == Isa::amx_emulated;
    EXPECT_EQ(admits(isa, Isa::avx512_vnni), wide && vnni) << to_string(isa);
    EXPECT_EQ(admits(isa, Isa::avx512), wide || isa == Isa::avx512) << to_string(isa);
    EXPECT_EQ(admits(isa, Isa::avx2), isa != Isa::portable) << to_string(isa);
    EXPECT_EQ(admits(isa, Isa::amx), isa == Isa::amx) << to_string(isa);
    EXPECT_EQ(admits(isa, Isa::amx_emulated), isa == Isa::amx_emulated) << to_string(isa);
  }
}

TEST(Isa, AdmitsNothingThatTheMachineLacks) {
  using ulp::kernels::admits;
  constexpr Isa all[] = {Isa::portable,    Isa::avx2, Isa::avx512,
                         Isa::avx512_vnni, Isa::amx,  Isa::amx_emulated};
  const auto isas = ulp::kernels::available_isas();
  for (Isa needed : all) {
    const bool runs = std::find(isas.begin(), isas.end(), needed) != isas.end();
    EXPECT_EQ(admits(needed, needed), runs) << to_string(needed);
    for (Isa isa : all)
      EXPECT_TRUE(runs || !admits(isa, needed)) << to_string(isa) << " " << to_string(needed);
  }
}

TEST(Isa, TheProcessorHasTheNameThatTheSystemSays) {
  const std::string name = ulp::kernels::processor_name();
  EXPECT_TRUE(name.ends_with(")")) << name;
  for (const char c : name) EXPECT_TRUE(c >= ' ' && c <= '~') << name;
  std::ifstream file("/proc/cpuinfo");
  std::string said;
  for (std::string line; said.empty() && std::getline(file, line);) {
    if (line.starts_with("model name")) said = line.substr(line.find(": ") + 2);
  }
  if (said.empty() || said == "unknown") GTEST_SKIP() << "the system does not say it";
  EXPECT_TRUE(name.starts_with(said + " (")) << name << " and " << said;
}

TEST(Dispatch, TakesTheFirstThatIsAdmittedAndMakesSomething) {
  using ulp::kernels::Variant;
  constexpr Variant<int> table[] = {
      {Isa::avx512_vnni, 3}, {Isa::avx512, 2}, {Isa::avx2, 1}, {Isa::portable, 0}};
  EXPECT_EQ(first_admitted(table, Isa::portable), 0);
  using Make = std::unique_ptr<int> (*)(int);
  const Variant<Make> makers[] = {
      {Isa::avx2, [](int) -> std::unique_ptr<int> { return nullptr; }},
      {Isa::avx2, [](int x) -> std::unique_ptr<int> { return x > 5 ? std::make_unique<int>(1) : nullptr; }},
      {Isa::portable, [](int) { return std::make_unique<int>(2); }}};
  EXPECT_EQ(*make_first(makers, Isa::portable, 9), 2);
  const auto isas = ulp::kernels::available_isas();
  if (std::find(isas.begin(), isas.end(), Isa::avx2) == isas.end()) GTEST_SKIP() << "this machine lacks AVX2";
  EXPECT_EQ(first_admitted(table, Isa::avx2), 1);
  EXPECT_EQ(*make_first(makers, Isa::avx2, 9), 1);
  EXPECT_EQ(*make_first(makers, Isa::avx2, 3), 2);
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
