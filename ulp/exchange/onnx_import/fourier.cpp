// Fourier transforms as products with tables of waves, which are buffers of the model.
#include <ATen/record_function.h>
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "ulp/exchange/onnx_import/constants.h"
#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// Cosines and sines of 2 pi k n / length, [time, frequencies].
struct Waves {
  Tensor cosines, sines;
};

/// In double; exact in the place on the circle.
Waves waves_of(int64_t time, int64_t length, int64_t frequencies) {
  const Tensor places = at::arange(time, at::TensorOptions(at::kLong)),
               counts = at::arange(frequencies, at::TensorOptions(at::kLong));
  const Tensor turns = at::remainder(at::outer(places, counts), length).to(at::kDouble);
  const Tensor angles = at::mul(turns, 2 * std::numbers::pi / static_cast<double>(length));
  return {at::cos(angles), at::sin(angles)};
}

/// In the type of the signal, as buffers of the model.
Waves kept_waves(Call& call, const Waves& waves, at::ScalarType type) {
  const auto kept = [&](const char* ending, const Tensor& of) {
    Tensor table;
    {
      const at::DisableRecordFunctionGuard beside_the_capture;
      table = of.to(type);
    }
    return constant_of_node(call, ending, table);
  };
  return {kept(".cosines", waves.cosines), kept(".sines", waves.sines)};
}

/// The transform of [..., time, 1 or 2], as [..., frequencies, 2]: sums of products with waves, in the type
/// of x. Beyond `time` the signal is zero.
Tensor transformed(Call& call, const Tensor& x, int64_t length, bool inverse, bool one_sided) {
  const int64_t parts = x.size(-1), time = std::min(x.size(-2), length);
  if (parts != 1 && parts != 2) call.refuse("expected real or complex numbers, got ", x.sizes());
  Waves waves;
  {
    const at::DisableRecordFunctionGuard beside_the_capture;
    waves = waves_of(time, length, one_sided ? length / 2 + 1 : length);
    const auto count = static_cast<double>(length);
    if (inverse) waves = {waves.cosines / count, -waves.sines / count};
  }
  const auto [cosines, sines] = kept_waves(call, waves, x.scalar_type());
  const Tensor real = at::slice(at::select(x, -1, 0), -1, 0, time);
  Tensor real_sum = at::matmul(real, cosines), imaginary_sum = at::neg(at::matmul(real, sines));
  if (parts == 2) {
    const Tensor imaginary = at::slice(at::select(x, -1, 1), -1, 0, time);
    real_sum = at::add(real_sum, at::matmul(imaginary, sines));
    imaginary_sum = at::add(imaginary_sum, at::matmul(imaginary, cosines));
  }
  return at::stack({real_sum, imaginary_sum}, -1);
}

/// The waves of the first `kept` frequencies, each with its share in a real signal: each but 0 and the middle
/// one stands for its conjugate, too.
Waves shared_waves(int64_t kept, int64_t length) {
  const auto [cosines, sines] = waves_of(kept, length, length);
  Tensor share = at::full({kept, 1}, 2.0 / static_cast<double>(length), at::kDouble);
  share.select(0, 0).fill_(1.0 / static_cast<double>(length));
  if (length % 2 == 0 && kept == length / 2 + 1)
    share.select(0, kept - 1).fill_(1.0 / static_cast<double>(length));
  return {at::mul(cosines, share), at::mul(sines, share)};
}

/// The real signal of the first half of its frequencies [..., time / 2 + 1, 2], as [..., length, 1].
Tensor real_inverse(Call& call, const Tensor& x, int64_t length) {
  const int64_t count = std::min(x.size(-2), length / 2 + 1);
  Waves waves;
  {
    const at::DisableRecordFunctionGuard beside_the_capture;
    waves = shared_waves(count, length);
  }
  const auto [cosines, sines] = kept_waves(call, waves, x.scalar_type());
  const auto part = [&](int64_t i) { return at::slice(at::select(x, -1, i), -1, 0, count); };
  return at::unsqueeze(at::sub(at::matmul(part(0), cosines), at::matmul(part(1), sines)), -1);
}

void dft(Call& call) {
  constexpr int64_t kAxisIsInput = 20;
  const Tensor x = call.x(0);
  const int64_t rank = x.dim();
  if (rank < 2) call.refuse("expected a signal [..., 1 or 2], got ", x.sizes());
  int64_t axis = call.opset() < kAxisIsInput ? call.attribute("axis", int64_t{1}) : -2;
  if (call.has(2)) axis = call.integer(2);
  axis = call.dim(axis, rank);
  if (axis == rank - 1) call.refuse("expected an axis before the last one");
  const bool inverse = call.attribute("inverse", int64_t{0}) != 0,
             one_sided = call.attribute("onesided", int64_t{0}) != 0;
  const Tensor last = at::transpose(x, axis, -2);
  const int64_t whole = inverse && one_sided ? 2 * (last.size(-2) - 1) : last.size(-2);
  const int64_t length = call.has(1) ? call.integer(1) : whole;
  if (length < 1) call.refuse("expected a length of at least 1, got ", length);
  if (one_sided && x.size(-1) != (inverse ? 2 : 1))
    call.refuse("expected real numbers on the side that is not one-sided, got ", x.sizes());
  const Tensor y = inverse && one_sided ? real_inverse(call, last, length)
                                        : transformed(call, last, length, inverse, one_sided);
  call.set(at::transpose(y, axis, -2));
}

void stft(Call& call) {
  const Tensor signal = call.x(0);
  if (signal.dim() != 3) call.refuse("expected a signal [batch, time, 1 or 2], got ", signal.sizes());
  const int64_t step = call.integer(1);
  int64_t length = call.has(2) ? call.sizes(2).at(0) : signal.size(1);
  if (call.has(3)) length = call.integer(3);
  if (length < 1 || length > signal.size(1) || step < 1)
    call.refuse("expected frames within the signal of ", signal.size(1), ", got ", length);
  const bool one_sided = call.attribute("onesided", int64_t{1}) != 0 && signal.size(2) == 1;
  // [batch, frames, 1 or 2, length] -> [batch, frames, length, 1 or 2]
  Tensor frames = at::transpose(signal.unfold(1, length, step), -1, -2);
  if (call.has(2)) {
    const Tensor window = call.x(2);
    if (window.dim() != 1 || window.size(0) != length)
      call.refuse("expected a window of ", length, " numbers, got ", window.sizes());
    frames = at::mul(frames, at::unsqueeze(window, -1));
  }
  call.set(transformed(call, frames, length, /*inverse=*/false, one_sided));
}

double all_waves(Call& call) {
  double all = 4, longest = 1;
  for (const int64_t size : call.sizes(0)) {
    all *= std::max(static_cast<double>(size), 1.0);
    longest = std::max(longest, static_cast<double>(size));
  }
  if (call.has(1)) longest = std::max(longest, static_cast<double>(call.integer(1)));
  return all * longest + 4 * longest * longest;
}

/// Frames, their products with waves, and the tables of those.
double waves_of_frames(Call& call) {
  const std::vector<int64_t> x = call.sizes(0);
  if (x.size() != 3) return 0;  // refused later
  const auto as_number = [](int64_t size) { return static_cast<double>(size); };
  double length = as_number(x[1]);
  if (call.has(2)) length = as_number(call.sizes(2).at(0));
  if (call.has(3)) length = as_number(call.integer(3));
  length = std::clamp(length, 1.0, std::max(as_number(x[1]), 1.0));  // a longer one is refused later
  const double step = std::max(as_number(call.integer(1)), 1.0);
  const double frames = (as_number(x[1]) - length) / step + 1;
  constexpr double kPieces = 4;  // windowed parts, sums of both, and the result
  const double batch = std::max(as_number(x[0]), 1.0), parts = std::max(as_number(x[2]), 1.0);
  return kPieces * (batch * frames * length * parts + length * length);
}

}  // namespace

ConverterTable fourier_table() {
  static constexpr Converter kTable[] = {{"DFT", dft, all_waves}, {"STFT", stft, waves_of_frames}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
