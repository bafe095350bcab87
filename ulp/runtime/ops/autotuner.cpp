#include "ulp/runtime/ops/autotuner.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <limits>
#include <memory>

#include "ulp/base/parallel.h"
#include "ulp/kernels/isa/cpu.h"

namespace ulp::runtime {
namespace {

constexpr int kTurnsOfLong = 3;
constexpr double kLong = 0.005;     // seconds
constexpr double kShortest = 1e-9;  // seconds

/// Processor time, so that other programs on the machine count little.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Memory on a cache line.
class Lines {
 public:
  explicit Lines(size_t bytes) : lines_(count_of(bytes)) {}
  /// What a Lines of so many bytes takes.
  static size_t taken(size_t bytes) { return count_of(bytes) * sizeof(Line); }
  std::byte* data() { return lines_.front().bytes; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  static size_t count_of(size_t bytes) { return bytes / sizeof(Line) + 1; }
  std::vector<Line> lines_;
};

size_t largest_workspace(std::span<const kernels::Conv* const> layers, int64_t items) {
  size_t most = 0;
  for (const kernels::Conv* layer : layers) most = std::max(most, layer->workspace_bytes(items, 1));
  return most;
}

}  // namespace

const std::string& measuring_machine() {
  static const std::string text = kernels::processor_name() + ", second level cache of " +
                                  std::to_string(kernels::second_level_cache() >> 10) + " KiB";
  return text;
}

Autotuner::Autotuner(const kernels::ConvConfig& config, bool far)
    : begin_(thread_seconds()), integer_(config.input == DataType::u8), far_(far) {
  const kernels::ConvShape& s = config.shape;
  const int64_t out = s.out_h() * s.out_w() * s.out_channels;
  input_bytes_ = s.in_h * s.in_w * s.in_channels * element_bytes(config.input);
  output_bytes_ = out * element_bytes(config.output);
  residual_bytes_ = config.residual ? out * element_bytes(config.residual_type) : 0;
}

double Autotuner::spent() const {
  return thread_seconds() - begin_;
}

size_t Autotuner::far_bytes() const {
  return far_ ? static_cast<size_t>(2 * kernels::second_level_cache()) : 0;
}

size_t Autotuner::bytes(std::span<const kernels::Conv* const> layers, int64_t items) const {
  size_t sum = far_bytes() + Lines::taken(largest_workspace(layers, items));
  for (const int64_t each : {input_bytes_, output_bytes_, residual_bytes_})
    sum += Lines::taken(static_cast<size_t>(items * each));
  return sum;
}

void Autotuner::drive_out() {
  volatile std::byte* bytes = others_.data();  // or the compiler leaves these stores out
  for (size_t i = 0; i < others_.size(); i += 64) bytes[i] = std::byte{1};
}

std::vector<double> Autotuner::seconds(std::span<const kernels::Conv* const> layers, int64_t items,
                                       int turns) {
  const SerialParallel serial;
  others_.resize(far_bytes());
  Lines x(static_cast<size_t>(items * input_bytes_)), y(static_cast<size_t>(items * output_bytes_)),
      residual(static_cast<size_t>(items * residual_bytes_));
  // Codes, or floats of 0x3c3c3c3c = 0.011: no kernel's time depends on the numbers, but for those next to
  // zero.
  std::memset(x.data(), integer_ ? 100 : 0x3c, static_cast<size_t>(items * input_bytes_));
  Lines workspace(largest_workspace(layers, items));
  const auto run = [&](const kernels::Conv& layer) {
    layer.run(items, x.data(), residual_bytes_ == 0 ? nullptr : residual.data(), y.data(), workspace.data(),
              serial);
  };
  std::vector<double> best(layers.size(), std::numeric_limits<double>::infinity());
  for (const kernels::Conv* layer : layers) run(*layer);  // brings pages and tables
  const double start = thread_seconds();
  run(*layers[0]);
  // Short runs are repeated, or the clock would count; what was driven out is near again after the first.
  const double once = std::max(thread_seconds() - start, 1e-7);
  const int repeats = others_.empty() ? static_cast<int>(std::clamp(1e-4 / once, 1.0, 100.0)) : 1;
  if (once > kLong) turns = std::min(turns, kTurnsOfLong);
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t i = 0; i < layers.size(); ++i) {
      drive_out();
      const double begin = thread_seconds();
      for (int r = 0; r < repeats; ++r) run(*layers[i]);
      best[i] = std::min(best[i], (thread_seconds() - begin) / repeats);
    }
  }
  for (double& seconds : best) seconds = std::max(seconds, kShortest);
  return best;
}

}  // namespace ulp::runtime
