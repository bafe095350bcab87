#include "ulp/kernels/isa/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/kernels/isa/dispatch.h"
#include "ulp/kernels/isa/family.h"

namespace {

using ulp::kernels::Isa;

constexpr Isa kX86[] = {Isa::portable, Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::amx};
constexpr Isa kArm[] = {Isa::portable, Isa::neon, Isa::neon_dotprod, Isa::neon_i8mm, Isa::neon_bf16};

std::vector<Isa> all_isas() {
  std::vector<Isa> all = {Isa::amx_emulated};
  for (const Isa isa : kX86) all.push_back(isa);
  for (const Isa isa : kArm) {
    if (isa != Isa::portable) all.push_back(isa);  // there already
  }
  return all;
}

bool runs(Isa isa) {
  const auto isas = ulp::kernels::available_isas();
  return std::find(isas.begin(), isas.end(), isa) != isas.end();
}

TEST(Isa, WordsGoThereAndBack) {
  for (Isa isa : all_isas()) {
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

TEST(Isa, OneArchitectureIsThere) {
#if defined(__aarch64__)
  EXPECT_TRUE(runs(Isa::neon));
  for (Isa isa : kX86) EXPECT_EQ(runs(isa), isa == Isa::portable) << to_string(isa);
#else
  for (Isa isa : kArm) EXPECT_EQ(runs(isa), isa == Isa::portable) << to_string(isa);
#endif
}

TEST(Isa, ForcingWhatTheMachineLacksIsAnError) {
  for (Isa isa : all_isas()) {
    if (runs(isa)) continue;
    EXPECT_THROW(ulp::kernels::choose_isa(ulp::kernels::to_string(isa)), ulp::Error) << to_string(isa);
  }
}

/// Each of the chain includes those before it.
void expect_chain(const Isa (&chain)[5]) {
  for (size_t i = 0; i < std::size(chain); ++i) {
    if (!runs(chain[i])) continue;
    for (size_t j = 0; j < std::size(chain); ++j) {
      EXPECT_EQ(ulp::kernels::admits(chain[i], chain[j]), j <= i && runs(chain[j]))
          << to_string(chain[i]) << " " << to_string(chain[j]);
    }
    EXPECT_FALSE(ulp::kernels::admits(chain[i], Isa::amx_emulated)) << to_string(chain[i]);
  }
}

TEST(Isa, AdmitsWhatItIncludesAndTheMachineRuns) {
  using ulp::kernels::admits;
  expect_chain(kX86);
  expect_chain(kArm);
  for (Isa isa : all_isas()) EXPECT_TRUE(admits(isa, Isa::portable));
  // The emulation runs beside the instructions of AVX-512, so what it adds to them is up to the machine.
  EXPECT_EQ(admits(Isa::amx_emulated, Isa::amx_emulated), runs(Isa::avx512));
  EXPECT_EQ(admits(Isa::amx_emulated, Isa::avx512_vnni), runs(Isa::avx512_vnni));
  EXPECT_EQ(admits(Isa::amx_emulated, Isa::avx2), runs(Isa::avx2));
  EXPECT_FALSE(admits(Isa::amx_emulated, Isa::amx));
}

TEST(Isa, AdmitsNothingThatTheMachineLacks) {
  using ulp::kernels::admits;
  const std::vector<Isa> all = all_isas();
  for (Isa needed : all) {
    EXPECT_EQ(admits(needed, needed), runs(needed)) << to_string(needed);
    for (Isa isa : all)
      EXPECT_TRUE(runs(needed) || !admits(isa, needed)) << to_string(isa) << " " << to_string(needed);
  }
}

#if defined(__aarch64__)
TEST(Isa, TheProcessorHasTheNameThatTheSystemSays) {
  const std::string name = ulp::kernels::processor_name();
  const std::string digits = "0123456789abcdef";
  ASSERT_TRUE(name.starts_with("Arm")) << name;
  if (name == "Arm") GTEST_SKIP() << "the system does not say it";
  ASSERT_TRUE(name.starts_with("Arm (") && name.ends_with(")")) << name;
  EXPECT_EQ(name.substr(5, name.size() - 6).find_first_not_of(digits), std::string::npos) << name;
}
#else
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
#endif

TEST(Isa, FamiliesAreThoseThatVendorsCount) {
  using ulp::kernels::family_of;
  static_assert(family_of(0x00B40F40) == 0x1A);  // constexpr: no instruction of the processor
  const std::pair<uint32_t, uint32_t> known[] = {
      {0x00B40F40, 0x1A}, {0x00B00F21, 0x1A},    // Zen 5: Ryzen 9000, EPYC 9005
      {0x00A20F12, 0x19}, {0x00A10F11, 0x19},    // Zen 3 and Zen 4: Ryzen 5000, EPYC 9004
      {0x00800F82, 0x17},                        // Zen+: Ryzen 2000
      {0x000806F8, 6},    {0x000906EA, 6},       // Intel: Xeon of the fourth generation, Core of the eighth
      {0x00000F41, 0xF},                         // Pentium 4, whose extended family is 0
      {0x0FF00663, 6},    {0x0FF00F00, 0x10E}};  // an extended family counts beside 15 alone
  for (const auto& [signature, family] : known)
    EXPECT_EQ(family_of(signature), family) << std::hex << signature;
}

TEST(Isa, FamilyOneAIsThatOfTheSignature) {
#if defined(__x86_64__)
  const std::string name = ulp::kernels::processor_name();  // "AMD EPYC 9755 (b00f21)"
  const size_t open = name.rfind('(');
  ASSERT_NE(open, std::string::npos) << name;
  const auto signature = static_cast<uint32_t>(std::stoul(name.substr(open + 1), nullptr, 16));
  // No other vendor has reached this number.
  const bool same = ulp::kernels::family_of(signature) == 0x1A && runs(Isa::avx512);
  EXPECT_EQ(ulp::kernels::is_amd_family_1a(), same) << name;
#else
  EXPECT_FALSE(ulp::kernels::is_amd_family_1a());
#endif
}

TEST(Dispatch, TakesTheFirstThatIsAdmittedAndMakesSomething) {
  using ulp::kernels::Variant;
  const Isa plainest = runs(Isa::neon) ? Isa::neon : Isa::avx2;  // but for portable
  const Variant<int> table[] = {
      {Isa::avx512_vnni, 3}, {Isa::neon_dotprod, 2}, {plainest, 1}, {Isa::portable, 0}};
  EXPECT_EQ(first_admitted(table, Isa::portable), 0);
  using Make = std::unique_ptr<int> (*)(int);
  const Variant<Make> makers[] = {
      {plainest, [](int) -> std::unique_ptr<int> { return nullptr; }},
      {plainest, [](int x) -> std::unique_ptr<int> { return x > 5 ? std::make_unique<int>(1) : nullptr; }},
      {Isa::portable, [](int) { return std::make_unique<int>(2); }}};
  EXPECT_EQ(*make_first(makers, Isa::portable, 9), 2);
  if (!runs(plainest)) GTEST_SKIP() << "this machine lacks AVX2";
  EXPECT_EQ(first_admitted(table, plainest), 1);
  EXPECT_EQ(*make_first(makers, plainest, 9), 1);
  EXPECT_EQ(*make_first(makers, plainest, 3), 2);
}

// The variable is read once per process, so each word needs a fresh one.
TEST(IsaDeathTest, EnvironmentForcesTheChoice) {
#ifdef ULP_EMULATED
  GTEST_SKIP() << "under an emulator a program cannot start itself again";
#endif
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
