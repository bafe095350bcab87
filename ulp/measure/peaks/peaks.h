// Measures the peaks of this machine: products of each kind of number by its instruction sets, and
// the bandwidth of its memory and caches.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ulp/base/export.h"
#include "ulp/kernels/peak/peak.h"
#include "ulp/measure/interference.h"

namespace ulp::measure {

/// How peaks are measured.
struct PeakOptions {
  int threads = 0;  ///< 0: one per core the process may use
  /// Family of kernels by name ("avx2"), with what it includes; empty: ULP_ISA or the best there is.
  std::string isa = {};
  bool quick = false;  ///< a third of the time, a little less sure
  /// Called before each part with what it is ("f32, avx512"); may be empty.
  std::function<void(const std::string& part)> progress = {};
};

/// One loop of arithmetic.
struct MathPeak {
  kernels::MathType type = kernels::MathType::f32;
  std::string isa = {}, instruction = {};
  double rate = 0;  ///< operations/s of all threads, the best of many short runs
};

/// A level of memory.
struct ULP_API MemoryPeak {
  std::string name = {};  ///< "L1", "L2", "L3", "memory"
  double bytes = 0;       ///< that the threads have of it together; of memory what was passed over
  std::array<double, kernels::kMemoryPassCount> rate = {};  ///< bytes/s in the order of kernels::MemoryPass

  double of(kernels::MemoryPass pass) const { return rate[static_cast<size_t>(pass)]; }
  /// The fastest pass.
  double best() const;
};

/// The peaks of all threads together.
struct ULP_API Peaks {
  int threads = 1;
  std::string isa = {};                 ///< the family of kernels
  std::vector<MathPeak> math = {};      ///< plainest instruction set first
  std::vector<MemoryPeak> memory = {};  ///< nearest level first, memory last
  double seconds = 0;                   ///< that measuring took
  std::optional<double> others = {};    ///< see share_of_others()

  /// The fastest loop that serves this type: bf16 is multiplied as f32, too, and bits as 8-bit numbers.
  const MathPeak& fastest(kernels::MathType type) const;
  double rate(kernels::MathType type) const { return fastest(type).rate; }
  /// Keeps the higher of each figure: a peak is the most that was ever seen. `other` is of the same machine,
  /// threads and family, else throws ulp::Error.
  void raise(const Peaks& other);
};

/// Measures in 1 to 5 s, once. Arrays in memory are four times as large as the last cache, each, but no
/// larger than an eighth of the machine's memory. Throws ulp::Error for a family that this machine cannot
/// run, Interrupted on Ctrl-C.
ULP_API Peaks measure_peaks(const PeakOptions& options = {});

/// Peak of a device from its data sheet, operations/s: so many units do so many multiply-adds a clock each,
/// and each of them is two operations. An A100: 108 multiprocessors x 1024 x 1.41 GHz x 2 = 312 Tflop/s in
/// fp16.
ULP_API double device_peak(double units, double multiply_adds_per_clock, double clock_hz);

}  // namespace ulp::measure
