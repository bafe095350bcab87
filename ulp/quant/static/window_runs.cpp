#include "ulp/quant/static/window_runs.h"

namespace ulp::quant {

Spans adaptive_spans(int64_t in, int64_t out) {
  Spans spans;
  for (int64_t i = 0; i < out; ++i) spans.push_back({i * in / out, ((i + 1) * in + out - 1) / out});
  return spans;
}

std::vector<WindowRun> window_runs(const Spans& spans) {
  std::vector<WindowRun> runs;
  for (const auto& [start, end] : spans) {
    if (!runs.empty() && runs.back().kernel == end - start) {
      WindowRun& last = runs.back();
      const int64_t step = start - (last.start + (last.count - 1) * last.stride);
      if (step >= 1 && (last.count == 1 || last.stride == step)) {
        last.stride = step;
        ++last.count;
        continue;
      }
    }
    runs.push_back({.start = start, .kernel = end - start});
  }
  return runs;
}

}  // namespace ulp::quant
