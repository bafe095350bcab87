// The loops that measure peaks do what they say; how fast is for ulp/measure.
#include "ulp/kernels/peak/peak.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "helpers.h"
#include "ulp/base/error.h"

namespace ulp::kernels {
namespace {

using Sink = std::array<unsigned char, 64>;

Sink run(const PeakLoop& loop, int64_t passes) {
  alignas(64) Sink sink{};
  loop.run(passes, sink.data());
  return sink;
}

TEST(PeakLoops, EveryPassCountsAndIsTheSameAgain) {
  for (const PeakChoice& choice : peak_loops(best_isa())) {
    const std::string name = choice.isa + ": " + choice.loop.instruction;
    EXPECT_GT(choice.loop.operations, 0) << name;
    std::set<Sink> seen;
    for (const int64_t passes : {0, 1, 2, 3}) {
      seen.insert(run(choice.loop, passes));
      EXPECT_EQ(run(choice.loop, passes), run(choice.loop, passes)) << name;
    }
    EXPECT_EQ(seen.size(), 4u) << name << ": a pass left its results as they were";
  }
}

TEST(PeakLoops, AreThoseThatAFamilyOfKernelsMayUse) {
  size_t fewer = 0;
  std::vector<Isa> all = available_isas();
  std::erase(all, Isa::amx_emulated);
  for (const Isa isa : all) {
    const std::vector<PeakChoice> loops = peak_loops(isa);
    for (const MathType type : {MathType::f32, MathType::int8, MathType::binary}) {
      EXPECT_TRUE(std::ranges::any_of(loops, [&](const auto& choice) { return choice.loop.type == type; }))
          << to_string(isa) << " has no loop of " << to_string(type);
    }
    if (fewer != 0) {
      EXPECT_LT(loops.size(), fewer) << to_string(isa);
    }
    fewer = loops.size();
  }
  EXPECT_EQ(peak_loops(Isa::portable).front().isa, "portable");
}

TEST(MemoryPasses, ComputeWhatStreamDefines) {
  constexpr int64_t kCount = 192;
  for (const Isa isa : available_isas()) {
    std::vector<double> storage(3 * kCount + 8);
    auto* base = storage.data();
    while (reinterpret_cast<uintptr_t>(base) % 64 != 0) ++base;
    double *a = base, *b = base + kCount, *c = base + 2 * kCount;
    for (int64_t i = 0; i < kCount; ++i) a[i] = static_cast<double>(i + 1), b[i] = -1, c[i] = 0;
    EXPECT_EQ(memory_pass(MemoryPass::read, a, b, c, kCount, isa), kCount * (kCount + 1) / 2.0);
    const auto expect = [&](MemoryPass pass, const double* result, double factor) {
      EXPECT_EQ(memory_pass(pass, a, b, c, kCount, isa), 0);
      for (int64_t i = 0; i < kCount; ++i)
        ASSERT_EQ(result[i], factor * static_cast<double>(i + 1))
            << to_string(isa) << " " << to_string(pass) << i;
    };
    expect(MemoryPass::copy, c, 1);    // c = a
    expect(MemoryPass::scale, b, 3);   // b = 3 c
    expect(MemoryPass::add, c, 4);     // c = a + b
    expect(MemoryPass::triad, a, 15);  // a = b + 3 c
  }
}

TEST(MemoryPasses, RefuseACountOfPartialLines) {
  std::vector<double> memory(64);
  EXPECT_THROW(memory_pass(MemoryPass::read, memory.data(), memory.data(), memory.data(), 63, Isa::portable),
               Error);
}

}  // namespace
}  // namespace ulp::kernels
