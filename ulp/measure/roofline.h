// Where a piece of work stands below the roof of its machine: what bounds it, and how much of that bound it
// reaches.
//
// Williams, Waterman and Patterson (2009): with I operations a byte, no program does more than min(peak, I *
// bandwidth) operations a second. Here memory has levels, each with a bandwidth of its own.
#pragma once

#include <string>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/measure/peaks/peaks.h"
#include "ulp/runtime/plan/step_work.h"

namespace ulp::measure {

/// The resource that bounds a piece of work.
enum class Bound {
  math,    ///< the peak of its instruction set
  memory,  ///< the bandwidth of the level that its bytes come from
  latency  ///< neither: it reaches less than half of both
};

/// The demands on the caches of the run that a piece of work is part of.
struct Surroundings {
  double constant_bytes = 0;  ///< weights that the run reads
};

/// A piece of work below the roof.
struct RooflinePoint {
  double intensity = 0;     ///< operations a byte
  double operations = 0;    ///< a second
  double bandwidth = 0;     ///< bytes/s, of compulsory traffic
  double math_share = 0;    ///< of the time that the products take at the machine's peak
  double memory_share = 0;  ///< of the time that the bytes take at the bandwidth of `level`
  Bound bound = Bound::latency;
  std::string level = {};  ///< the memory whose bandwidth bounds most: "L2"
  /// The share of the nearer bound: the larger of both. Above 1 a peak or a count is wrong.
  double share() const { return math_share > memory_share ? math_share : memory_share; }
};

/// Seconds that `work` takes at the least at the machine's peaks, and why.
struct LeastTime {
  double math = 0, memory = 0;
  std::string level = {};
};

/// Bytes may come from a cache as far as they fit into it: of b bytes at least b - c come from beyond a cache
/// of c bytes. Of weights at most the share c / (all weights) is still there when a run comes back to them.
ULP_API LeastTime least_time(const runtime::StepWork& work, const Peaks& peaks, const Surroundings& around);

/// "math", "memory (L2)" or "latency".
ULP_API std::string bound_text(const RooflinePoint& placed);

/// `seconds`: measured.
ULP_API RooflinePoint roofline_point(const runtime::StepWork& work, double seconds, const Peaks& peaks,
                                     const Surroundings& around);

}  // namespace ulp::measure

namespace ulp {

template <>
struct EnumNames<measure::Bound> {
  static constexpr auto list = std::to_array<Word<measure::Bound>>({{measure::Bound::math, "math"},
                                                                    {measure::Bound::memory, "memory"},
                                                                    {measure::Bound::latency, "latency"}});
};

}  // namespace ulp
