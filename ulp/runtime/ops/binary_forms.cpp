#include "ulp/runtime/ops/binary_forms.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ulp/kernels/isa/cpu.h"
#include "ulp/runtime/ops/autotuner.h"

namespace ulp::runtime {
namespace {

using kernels::Conv;

constexpr double kBinaryMargin = 1.03;  // a timing may be off by as much
constexpr int64_t kMostBinaryProducts = int64_t{1} << 31;

/// What the layer reads and writes: Autotuner looks at nothing else.
kernels::ConvConfig buffers_of(const kernels::BinaryConvConfig& config, bool bits) {
  kernels::ConvConfig buffers;
  buffers.shape = config.shape;
  buffers.shape.in_channels = kernels::bit_bytes(config.shape.in_channels);
  buffers.input = DataType::u8;
  buffers.residual = config.residual;
  if (bits) {
    buffers.shape.out_channels = kernels::bit_bytes(config.shape.out_channels);
    buffers.output = DataType::u8;
  }
  return buffers;
}

int64_t measured_items(const kernels::ConvShape& s, const ItemRange& items) {
  const int64_t pixels = s.out_h() * s.out_w();
  const int64_t products = s.in_channels * s.kernel_h * s.kernel_w * s.out_channels * pixels;
  return std::clamp(kMostBinaryProducts / products, std::min<int64_t>(1, items.high), items.high);
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f ms", seconds * 1e3);
  return text;
}

}  // namespace

bool doubts_bits(kernels::Isa isa) {
  return isa == kernels::Isa::amx || isa == kernels::Isa::amx_emulated;
}

LayerForm make_binary_form(const kernels::BinaryConvConfig& config, const kernels::BinaryConvWeights& weights,
                           kernels::Isa isa, const PackRules& rules, const ItemRange& items, bool measure) {
  const std::shared_ptr<const Conv> bits = make_binary_conv(config, weights, isa);
  if (!measure) return {bits, ""};
  if (!rules.measured->has_time()) return {bits, "bits: the time for measuring is over"};
  const kernels::ConvShape& s = config.shape;
  const int64_t unpacked = s.in_channels * s.kernel_h * s.kernel_w * s.out_channels;
  if (2 * unpacked > static_cast<int64_t>(rules.measured->most_bytes()))  // and packed again
    return {bits, "bits: too large to measure"};
  try {
    const std::shared_ptr<const Conv> bytes = make_binary_as_bytes(config, weights, isa);
    if (bytes == nullptr) return {bits, "bits: sums too large for bytes"};
    const Conv* layers[] = {bits.get(), bytes.get()};
    Autotuner timer(buffers_of(config, weights.threshold != nullptr),
                    rules.constant_bytes > static_cast<size_t>(kernels::second_level_cache()));
    const int64_t count = measured_items(config.shape, items);
    if (timer.bytes(layers, count) > rules.measured->most_bytes())
      return {bits, "bits: too large to measure"};
    const std::vector<double> seconds = timer.seconds(layers, count);
    rules.measured->spend(timer.spent());
    const bool taken = seconds[0] > kBinaryMargin * seconds[1];
    return {taken ? bytes : bits, (taken ? "bytes: " : "bits: ") + milliseconds(seconds[0]) + " by bits, " +
                                      milliseconds(seconds[1]) + " by bytes at " + std::to_string(count) +
                                      (count == 1 ? " item" : " items")};
  } catch (const std::bad_alloc&) {
    // The layer over bits is packed already; only measuring takes more.
    return {bits, "bits: too large to measure"};
  }
}

}  // namespace ulp::runtime
