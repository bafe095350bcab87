#include "ulp/measure/peaks/peaks.h"

#include <algorithm>
#include <chrono>

#include "ulp/base/cpu_usage.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/base/seconds_since.h"
#include "ulp/measure/peaks/memory_peaks.h"
#include "ulp/measure/peaks/thread_barrier.h"

namespace ulp::measure {

namespace {

using kernels::Isa;
using kernels::MathType;

using Clock = std::chrono::steady_clock;

/// Runs are short: one that no other program interrupts is among many, also on a busy machine.
constexpr double kBurst = 0.4e-3;

double rate_of(const kernels::PeakLoop& loop, ThreadBarrier& crew, double budget) {
  int64_t passes = 256;
  const auto run = [&] {
    return crew.time([&](int) {
      alignas(64) unsigned char sink[64];
      loop.run(passes, sink);
    });
  };
  for (double seconds = run(); seconds < kBurst / 2; seconds = run()) passes *= 2;
  double best = 0;
  int runs = 0;
  const auto start = Clock::now();
  do {
    run();
    // On a busy machine the threads seldom have their processors at the same time: each by its own clock.
    double rate = 0;
    for (int i = 0; i < crew.threads(); ++i)
      rate += loop.operations * static_cast<double>(passes) / crew.seconds_of(i);
    best = std::max(best, rate);
  } while (++runs < 5 || seconds_since(start) < budget);
  return best;
}

Isa isa_of(const std::string& name) {
  return name.empty() ? kernels::selected_isa() : kernels::choose_isa(name.c_str());
}

}  // namespace

double MemoryPeak::best() const {
  return *std::ranges::max_element(rate);
}

const MathPeak& Peaks::fastest(MathType type) const {
  const auto serves = [&](MathType other) {
    return other == type || (type == MathType::bf16 && other == MathType::f32) ||
           (type == MathType::binary && other == MathType::int8);
  };
  const MathPeak* found = nullptr;
  for (const MathPeak& peak : math) {
    if (serves(peak.type) && (found == nullptr || peak.rate > found->rate)) found = &peak;
  }
  if (found == nullptr) fail("measure.Peaks", "expected a peak of ", kernels::to_string(type), ", got none");
  return *found;
}

void Peaks::raise(const Peaks& other) {
  if (other.isa != isa || other.threads != threads || other.math.size() != math.size() ||
      other.memory.size() != memory.size()) {
    fail("measure.Peaks.raise", "expected peaks of ", isa, " on ", threads, " threads, got those of ",
         other.isa, " on ", other.threads);
  }
  for (size_t i = 0; i < math.size(); ++i) math[i].rate = std::max(math[i].rate, other.math[i].rate);
  for (size_t i = 0; i < memory.size(); ++i) {
    for (size_t p = 0; p < memory[i].rate.size(); ++p)
      memory[i].rate[p] = std::max(memory[i].rate[p], other.memory[i].rate[p]);
  }
  seconds += other.seconds;
}

Peaks measure_peaks(const PeakOptions& options) {
  const auto start = Clock::now();
  const Isa isa = isa_of(options.isa);
  Peaks peaks{.threads = options.threads > 0 ? options.threads : usable_cores(),
              .isa = kernels::to_string(isa)};
  QuietMeter quiet;
  quiet.begin();
  const auto say = [&](const std::string& part) {
    check_interrupted();
    if (options.progress) options.progress(part);
  };
  ThreadBarrier crew(peaks.threads);
  for (const kernels::PeakChoice& choice : kernels::peak_loops(isa)) {
    say(std::string(kernels::to_string(choice.loop.type)) + ", " + choice.isa);
    peaks.math.push_back({choice.loop.type, choice.isa, choice.loop.instruction,
                          rate_of(choice.loop, crew, options.quick ? 15e-3 : 60e-3)});
  }
  peaks.memory = measure_memory(crew, isa, options.quick, say);
  quiet.end();
  peaks.others = quiet.others();
  peaks.seconds = seconds_since(start);
  return peaks;
}

double device_peak(double units, double multiply_adds_per_clock, double clock_hz) {
  return 2 * units * multiply_adds_per_clock * clock_hz;
}

}  // namespace ulp::measure
