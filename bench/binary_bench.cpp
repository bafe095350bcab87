// Binary layers against 8-bit and float ones of the same shape, and packing signs.
//
// The layers take turns; the median of the turns is printed. One thread counts processor time, several the clock on the
// wall.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ulp/kernels/binary/binary_conv.h"
#include "ulp/runtime/engine/thread_pool.h"

namespace {

using ulp::DataType;
using ulp::kernels::Conv;
using ulp::kernels::ConvShape;
using ulp::kernels::Isa;

double seconds(bool processor) {
  timespec now{};
  clock_gettime(processor ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Memory on a cache line, filled with small numbers.
class Lines {
 public:
  explicit Lines(int64_t bytes, int value = 0x3c) : lines_(static_cast<size_t>(bytes) / 64 + 1) {
    std::memset(lines_.data(), value, lines_.size() * 64);
  }
  uint8_t* data() { return lines_.data()->bytes; }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::vector<Line> lines_;
};

/// A way to compute a layer.
struct Way {
  const char* name;
  std::unique_ptr<Conv> layer;
};

std::vector<Way> ways_of(const ConvShape& s, bool bits, Isa isa) {
  const auto weights = static_cast<size_t>(s.out_channels * s.in_channels * s.kernel_h * s.kernel_w);
  const auto outputs = static_cast<size_t>(s.out_channels);
  std::mt19937 random(1);
  const std::vector<float> scale(outputs, 0.01F), floats(weights, 0.01F);
  const std::vector<int32_t> threshold(outputs, 0);
  const std::vector<int8_t> codes(weights, 3);
  std::vector<uint8_t> signs(
      static_cast<size_t>(s.out_channels * s.kernel_h * s.kernel_w * ulp::kernels::bit_bytes(s.in_channels)));
  for (uint8_t& byte : signs) byte = static_cast<uint8_t>(random());
  std::vector<Way> ways;
  ulp::kernels::BinaryConvWeights binary{.bits = signs.data()};
  if (bits) {
    binary.threshold = threshold.data();
  } else {
    binary.scale = scale.data();
  }
  ulp::kernels::BinaryConvConfig binary_config;
  binary_config.shape = s;
  ways.push_back({"binary", make_binary_conv(binary_config, binary, isa)});
  ulp::kernels::ConvConfig config;
  config.shape = s;
  config.input = DataType::u8;
  config.input_q = config.output_q = {0.1F, 100};
  config.output = bits ? DataType::u8 : DataType::f32;
  ways.push_back({"int8", make_conv(config, {.i8 = codes.data(), .scale = scale.data()}, isa)});
  config.input = config.output = DataType::f32;
  ways.push_back({"f32", make_conv(config, {.f32 = floats.data()}, isa)});
  return ways;
}

void measure(const std::string& what, const ConvShape& s, int64_t batch, bool bits, Isa isa, int threads) {
  const std::vector<Way> ways = ways_of(s, bits, isa);
  std::unique_ptr<ulp::Parallel> pool;
  if (threads > 1) pool = std::make_unique<ulp::runtime::ThreadPool>(threads);
  const ulp::SerialParallel serial;
  const ulp::Parallel& parallel = pool ? *pool : static_cast<const ulp::Parallel&>(serial);
  Lines x(batch * s.in_h * s.in_w * s.in_channels * 4), y(batch * s.out_h() * s.out_w() * s.out_channels * 4);
  size_t most = 0;
  for (const Way& way : ways) most = std::max(most, way.layer->workspace_bytes(batch, threads));
  Lines workspace(static_cast<int64_t>(most));
  const auto time = [&](const Way& way, int repeats) {
    const double start = seconds(threads == 1);
    for (int i = 0; i < repeats; ++i)
      way.layer->run(batch, x.data(), nullptr, y.data(), workspace.data(), parallel);
    return (seconds(threads == 1) - start) / repeats;
  };
  std::vector<int> repeats;
  for (const Way& way : ways) {
    time(way, 1);
    repeats.push_back(static_cast<int>(std::clamp(0.004 / std::max(time(way, 1), 1e-7), 1.0, 10000.0)));
  }
  std::vector<std::vector<double>> times(ways.size());
  for (int turn = 0; turn < 11; ++turn) {
    for (size_t i = 0; i < ways.size(); ++i) times[i].push_back(time(ways[i], repeats[i]));
  }
  const double macs = static_cast<double>(batch * s.out_h() * s.out_w() * s.out_channels) *
                      static_cast<double>(s.in_channels * s.kernel_h * s.kernel_w);
  std::printf("%-28s %d thr ", what.c_str(), threads);
  const double binary = median(times[0]);
  for (size_t i = 0; i < ways.size(); ++i) {
    const double one = median(times[i]);
    std::printf(" %s %9.4f ms %7.0f GMAC/s", ways[i].name, one * 1e3, macs / one * 1e-9);
    if (i > 0) std::printf(" (%5.2fx)", one / binary);
  }
  std::printf("  %s, %s\n", ways[0].layer->name().c_str(), ways[1].layer->name().c_str());
  std::fflush(stdout);
}

void measure_signs(int64_t rows, int64_t channels, bool thresholds, Isa isa) {
  const int64_t n = rows * channels;
  Lines x(n * 4), bits(rows * ulp::kernels::bit_bytes(channels));
  const std::vector<float> threshold(static_cast<size_t>(channels), 0.1F);
  const ulp::kernels::SignRows signs{.channels = channels,
                                     .threshold = thresholds ? threshold.data() : nullptr};
  std::vector<double> times;
  const ulp::SerialParallel serial;
  const int repeats = static_cast<int>(std::max<int64_t>(1, 20'000'000 / n));
  for (int turn = 0; turn < 11; ++turn) {
    const double start = seconds(true);
    for (int i = 0; i < repeats; ++i)
      pack_signs(signs, rows, reinterpret_cast<const float*>(x.data()), bits.data(), isa, serial);
    times.push_back((seconds(true) - start) / repeats);
  }
  std::printf("signs %7lld x %-5lld thresholds %d  %8.4f ms %7.2f GB/s of floats\n",
              static_cast<long long>(rows), static_cast<long long>(channels), thresholds, median(times) * 1e3,
              static_cast<double>(n) * 4e-9 / median(times));
}

}  // namespace

/// binary_bench [instruction set [part]], parts being linear, conv, signs; all of them without one.
int main(int argc, char** argv) {
  const Isa isa = ulp::kernels::choose_isa(argc > 1 ? argv[1] : nullptr);
  const auto wanted = [&](const char* part) { return argc < 3 || std::strcmp(argv[2], part) == 0; };
  for (const int threads : {1, 2}) {
    for (const int64_t in : {1024, 2304, 4096}) {
      if (!wanted("linear")) break;
      for (const int64_t rows : {1, 2, 4, 16, 64, 256}) {
        ConvShape s;
        s.in_channels = in;
        s.out_channels = 1024;
        measure(std::to_string(in) + " -> 1024, " + std::to_string(rows) + " rows", s, rows, false, isa,
                threads);
      }
    }
    for (const int64_t channels : {16, 32, 64, 128, 256}) {
      if (!wanted("conv")) break;
      const int64_t side = channels <= 64 ? 1024 / channels / 2 : channels == 128 ? 14 : 7;
      for (const bool bits : {false, true}) {
        ConvShape s{.in_h = side, .in_w = side, .in_channels = channels, .out_channels = channels};
        s.kernel_h = s.kernel_w = 3;
        s.pad_h = s.pad_w = 1;
        measure("3x3 of " + std::to_string(channels) + ", " + std::to_string(side) + "^2, " +
                    (bits ? "bits" : "f32"),
                s, 4, bits, isa, threads);
      }
    }
  }
  if (!wanted("signs")) return 0;
  for (const bool thresholds : {false, true}) {
    for (const int64_t channels : {16, 64, 65, 1024})
      measure_signs(1 << 20 >> (channels > 64 ? 6 : 2), channels, thresholds, isa);
    measure_signs(1000, 64, thresholds, isa);
  }
  return 0;
}
