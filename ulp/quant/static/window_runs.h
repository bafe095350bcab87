// Windows of several sizes along one dimension as runs of equal ones. Internal to the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::quant {

/// The elements that a window reads along one dimension.
struct Span {
  int64_t start = 0, end = 0;
};
using Spans = std::vector<Span>;

/// The windows of an adaptive pool: result i is of the elements floor(i in / out) to ceil((i + 1) in / out),
/// as at::native::start_index() and end_index() have it. `in` and `out` are 1 or more.
ULP_API Spans adaptive_spans(int64_t in, int64_t out);

/// Equal windows at equal distances.
struct WindowRun {
  int64_t start = 0, kernel = 1, stride = 1, count = 1;
  /// The elements from the start of the first window to the end of the last one.
  int64_t elements() const { return (count - 1) * stride + kernel; }
};

/// Parts of one image, the runs of its rows times those of its columns: more would make graphs and files of
/// thousands of operators.
constexpr size_t kMostWindowRuns = 128;

/// The windows in order, each run as long as it can be.
ULP_API std::vector<WindowRun> window_runs(const Spans& spans);

}  // namespace ulp::quant
