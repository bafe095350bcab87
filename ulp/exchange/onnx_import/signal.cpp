// Signals and states of sequences: Fourier transforms, caches of keys, and recurrences without a
// nonlinearity.
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// Cosines and sines of 2 pi k n / length, [time, frequencies], in double; exact in the place on the circle.
std::pair<Tensor, Tensor> waves(int64_t time, int64_t length, int64_t frequencies) {
  const Tensor places = at::arange(time, at::TensorOptions(at::kLong)),
               waves_of = at::arange(frequencies, at::TensorOptions(at::kLong));
  const Tensor turns = at::remainder(at::outer(places, waves_of), length).to(at::kDouble);
  const Tensor angles = at::mul(turns, 2 * std::numbers::pi / static_cast<double>(length));
  return {at::cos(angles), at::sin(angles)};
}

/// The transform of [..., time, 1 or 2], as [..., frequencies, 2]: sums of products with waves, in the type
/// of x. Beyond `time` the signal is zero.
Tensor transformed(const Call& call, const Tensor& x, int64_t length, bool inverse, bool one_sided) {
  const int64_t parts = x.size(-1), time = std::min(x.size(-2), length);
  if (parts != 1 && parts != 2) call.refuse("expected real or complex numbers, got ", x.sizes());
  const int64_t frequencies = one_sided ? length / 2 + 1 : length;
  auto [cosines, sines] = waves(time, length, frequencies);
  if (inverse) {
    cosines = cosines / static_cast<double>(length);
    sines = -sines / static_cast<double>(length);
  }
  cosines = cosines.to(x.scalar_type());
  sines = sines.to(x.scalar_type());
  const Tensor real = at::slice(at::select(x, -1, 0), -1, 0, time);
  Tensor real_sum = at::matmul(real, cosines), imaginary_sum = at::neg(at::matmul(real, sines));
  if (parts == 2) {
    const Tensor imaginary = at::slice(at::select(x, -1, 1), -1, 0, time);
    real_sum = at::add(real_sum, at::matmul(imaginary, sines));
    imaginary_sum = at::add(imaginary_sum, at::matmul(imaginary, cosines));
  }
  return at::stack({real_sum, imaginary_sum}, -1);
}

/// The real signal of the first half of its frequencies [..., time / 2 + 1, 2], as [..., length, 1].
Tensor real_inverse(const Tensor& x, int64_t length) {
  const int64_t kept = std::min(x.size(-2), length / 2 + 1);
  auto [cosines, sines] = waves(kept, length, length);
  // Each frequency but 0 and the middle one stands for its conjugate, too.
  Tensor share = at::full({kept, 1}, 2.0 / static_cast<double>(length), at::kDouble);
  share.select(0, 0).fill_(1.0 / static_cast<double>(length));
  if (length % 2 == 0 && kept == length / 2 + 1)
    share.select(0, kept - 1).fill_(1.0 / static_cast<double>(length));
  const auto part = [&](int64_t i) { return at::slice(at::select(x, -1, i), -1, 0, kept); };
  const Tensor y = at::sub(at::matmul(part(0), at::mul(cosines, share).to(x.scalar_type())),
                           at::matmul(part(1), at::mul(sines, share).to(x.scalar_type())));
  return at::unsqueeze(y, -1);
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
  const Tensor y =
      inverse && one_sided ? real_inverse(last, length) : transformed(call, last, length, inverse, one_sided);
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
  const std::vector<int64_t> x = call.sizes(0);
  double all = 4, longest = 1;
  for (const int64_t size : x) {
    all *= static_cast<double>(size);
    longest = std::max(longest, static_cast<double>(size));
  }
  if (call.has(1) && call.node().op == "DFT")
    longest = std::max(longest, static_cast<double>(call.integer(1)));
  return all * longest + 4 * longest * longest;
}

/// The elements where the condition is true, which is known.
void compress(Call& call) {
  const Tensor x = call.x(0);
  const bool flat = !call.has_attribute("axis");
  const Tensor rows = flat ? at::reshape(x, {-1}) : x;
  const int64_t dim = call.dim(call.attribute("axis", int64_t{0}), rows.dim());
  std::vector<Tensor> kept;
  const std::vector<at::Scalar> condition = call.numbers(1);
  if (static_cast<int64_t>(condition.size()) > rows.size(dim))
    call.refuse("expected at most ", rows.size(dim), " conditions, got ", condition.size());
  for (size_t i = 0; i < condition.size(); ++i) {
    const auto at_i = static_cast<int64_t>(i);
    if (condition[i].toLong() != 0) kept.push_back(at::slice(rows, dim, at_i, at_i + 1));
  }
  call.set(kept.empty() ? at::slice(rows, dim, 0, 0) : at::cat(kept, dim));
}

/// The first elements of each sequence in reverse.
void reverse_sequence(Call& call) {
  const Tensor x = call.x(0);
  const int64_t batch = call.attribute("batch_axis", int64_t{1}),
                time = call.attribute("time_axis", int64_t{0});
  if (x.dim() < 2 || batch + time != 1 || batch * time != 0)
    call.refuse("expected a batch and a time as the first two of the dimensions, got ", x.sizes());
  const Tensor places = at::arange(x.size(time), at::TensorOptions(at::kLong));
  const Tensor lengths = at::unsqueeze(call.x(1), 1);
  const Tensor turned =
      at::where(at::lt(places, lengths), at::sub(at::sub(lengths, 1), places), places);  // [batch, time]
  std::vector<int64_t> sizes(static_cast<size_t>(x.dim()), 1);
  sizes[static_cast<size_t>(batch)] = turned.size(0);
  sizes[static_cast<size_t>(time)] = turned.size(1);
  const Tensor rows = at::reshape(time == 1 ? turned : at::transpose(turned, 0, 1), sizes);
  call.set(at::gather(x, time, at::expand_copy(rows, x.sizes())));
}

/// A cache of keys with new ones written from a place of each sequence on.
void tensor_scatter(Call& call) {
  const Tensor past = call.x(0), update = call.x(1);
  const int64_t axis = call.dim(call.attribute("axis", int64_t{-2}), past.dim());
  if (axis == 0 || update.dim() != past.dim())
    call.refuse("expected an update of ", past.dim(), " dimensions along one behind the batch, got ",
                update.sizes());
  const std::string mode = call.attribute("mode", "linear");
  if (mode != "linear" && mode != "circular")
    call.refuse("expected mode linear or circular, got '", mode, "'");
  Tensor places = at::unsqueeze(at::arange(update.size(axis), at::TensorOptions(at::kLong)), 0);
  if (call.has(2)) places = at::add(places, at::unsqueeze(call.x(2), 1));
  if (mode == "circular") places = at::remainder(places, past.size(axis));
  std::vector<int64_t> sizes(static_cast<size_t>(past.dim()), 1);
  sizes[0] = places.size(0);
  sizes[static_cast<size_t>(axis)] = places.size(1);
  call.set(at::scatter(past, axis, at::expand_copy(at::reshape(places, sizes), update.sizes()), update));
}

/// A convolution over the channels one by one, of numbers before alone; what it needs of the next step is a
/// result.
void causal_conv(Call& call) {
  const Tensor x = call.x(0), weight = call.x(1);
  if (x.dim() != 3 || weight.dim() != 3)
    call.refuse("expected [batch, channels, time] and weights [channels, 1, size], got ", x.sizes(), " and ",
                weight.sizes());
  const int64_t before = weight.size(2) - 1;
  const Tensor all = call.has(3) ? at::cat({call.x(3), x}, 2) : at::constant_pad_nd(x, {before, 0}, 0);
  const std::vector<int64_t> one = {1}, none = {0};
  const Tensor y = at::conv1d(all, weight, call.optional(2), one, none, one, x.size(1));
  const std::string word = call.attribute("activation", "none");
  if (word != "none" && word != "silu" && word != "swish")
    call.refuse("expected activation none, silu or swish, got '", word, "'");
  call.set(word == "none" ? y : at::silu(y), 0);
  call.set(at::slice(all, 2, all.size(2) - before, all.size(2)), 1);
}

double causal_conv_bound(Call& call) {
  const std::vector<int64_t> x = call.sizes(0), weight = call.sizes(1);
  if (x.size() != 3 || weight.size() != 3) return 0;
  return 4 * static_cast<double>(x[0]) * static_cast<double>(x[1]) * static_cast<double>(x[2] + weight[2]);
}

/// A state [batch, heads, keys, values] that each step of the sequence adds to, and that each query reads.
class LinearAttention {
 public:
  explicit LinearAttention(Call& call)
      : call_(call),
        rule_(call.attribute("update_rule", "gated_delta")),
        heads_(call.attribute("q_num_heads", int64_t{0})),
        kept_heads_(call.attribute("kv_num_heads", int64_t{0})) {
    if (heads_ < 1 || kept_heads_ < 1 || heads_ % kept_heads_ != 0)
      call.refuse("expected heads of keys that divide those of queries, got ", heads_, " and ", kept_heads_);
    gated_ = rule_ == "gated" || rule_ == "gated_delta";
    delta_ = rule_ == "delta" || rule_ == "gated_delta";
    if (!gated_ && !delta_ && rule_ != "linear")
      call.refuse("expected a rule that is known, got '", rule_, "'");
    if (gated_ && !call.has(4)) call.refuse("expected a decay for the rule ", rule_);
    if (delta_ && !call.has(5)) call.refuse("expected a rate of the update for the rule ", rule_);
  }

  void run() {
    constexpr size_t kPastState = 3, kDecay = 4, kRate = 5;
    const at::ScalarType type = call_.x(0).scalar_type();
    const Tensor q = split(call_.x(0), heads_), k = split(call_.x(1), kept_heads_),
                 v = split(call_.x(2), kept_heads_);
    const Tensor decay = gated_ ? at::exp(split(call_.x(kDecay), kept_heads_)) : Tensor();
    const Tensor rate =
        delta_ ? split(call_.x(kRate), call_.x(kRate).size(2) == 1 ? 1 : kept_heads_) : Tensor();
    const int64_t time = q.size(2);
    call_.count_steps(time);
    Tensor state = call_.has(kPastState)
                       ? wide(call_.x(kPastState))
                       : at::zeros({q.size(0), kept_heads_, k.size(3), v.size(3)}, k.options());
    const double given = call_.attribute("scale", 0.0);
    const double scale = given == 0 ? 1 / std::sqrt(static_cast<double>(q.size(3))) : given;
    std::vector<Tensor> results;
    for (int64_t t = 0; t < time; ++t) {
      const auto step = [&](const Tensor& x) { return at::select(x, 2, t); };  // [batch, heads, size]
      if (gated_) state = at::mul(state, at::unsqueeze(step(decay), -1));
      const Tensor key = at::unsqueeze(step(k), -1);
      Tensor value = at::unsqueeze(step(v), -2);
      if (delta_) {
        const Tensor known = at::matmul(at::transpose(key, -2, -1), state);
        value = at::mul(at::sub(value, known), at::unsqueeze(step(rate), -1));
      }
      state = at::add(state, at::mul(key, value));
      const Tensor read =
          heads_ == kept_heads_ ? state : at::repeat_interleave(state, heads_ / kept_heads_, 1);
      results.push_back(at::squeeze(at::matmul(at::unsqueeze(step(q), -2), read), -2));
    }
    if (results.empty()) call_.refuse("expected a sequence of one step or more");
    const Tensor y = at::mul(at::stack(results, 1), scale);  // [batch, time, heads, values]
    call_.set(at::reshape(y, {y.size(0), y.size(1), y.size(2) * y.size(3)}).to(type), 0);
    call_.set(state.to(type), 1);
  }

 private:
  /// States of 16 bits would round at each step.
  static Tensor wide(const Tensor& x) {
    return at::isReducedFloatingType(x.scalar_type()) ? x.to(at::kFloat) : x;
  }
  /// [batch, time, heads * size] -> [batch, heads, time, size].
  Tensor split(const Tensor& x, int64_t heads) const {
    if (x.dim() != 3 || x.size(2) % heads != 0)
      call_.refuse("expected [batch, time, ", heads, " heads * size], got ", x.sizes());
    return at::transpose(wide(at::reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads})), 1, 2);
  }

  Call& call_;
  std::string rule_;
  int64_t heads_, kept_heads_;
  bool gated_ = false, delta_ = false;
};

void linear_attention(Call& call) {
  LinearAttention(call).run();
}

/// The states of all steps.
double linear_attention_bound(Call& call) {
  const std::vector<int64_t> q = call.sizes(0), k = call.sizes(1), v = call.sizes(2);
  if (q.size() != 3 || k.size() != 3 || v.size() != 3) return 0;
  const auto as_number = [](int64_t size) { return static_cast<double>(size); };
  const double group = std::max(1.0, as_number(call.attribute("q_num_heads", int64_t{1})));
  return 6 * as_number(q[0]) * as_number(q[1]) * as_number(k[2]) * as_number(v[2]) * group;
}

double columns_bound(Call& call) {
  double image = 1;
  for (const int64_t size : call.ints(1)) image *= static_cast<double>(std::max<int64_t>(size, 1));
  const std::vector<int64_t> x = call.sizes(0);
  return 4 * (image * static_cast<double>(x.at(0)) * static_cast<double>(x.at(1)) + first_input(call));
}

/// Sums of columns at their places in an image of two dimensions.
void col2im(Call& call) {
  using Sizes = std::vector<int64_t>;
  const Sizes image = call.ints(1), block = call.ints(2);
  if (image.size() != 2 || block.size() != 2)
    call.refuse("expected an image of two dimensions, got ", image.size());
  const Sizes ones(2, 1), dilations = call.attribute("dilations", ones),
                          strides = call.attribute("strides", ones),
                          pads = call.attribute("pads", Sizes(4, 0));
  const bool right = dilations.size() == 2 && strides.size() == 2 && pads.size() == 4;
  if (!right || pads[0] != pads[2] || pads[1] != pads[3])
    call.refuse("expected equal pads on both sides of two dimensions");
  call.set(at::col2im(call.x(0), image, block, dilations, {pads[0], pads[1]}, strides));
}

void det(Call& call) {
  call.set(at::linalg_det(call.x(0)));
}

}  // namespace

ConverterTable signal_table() {
  static constexpr Converter kTable[] = {{"DFT", dft, all_waves},
                                         {"STFT", stft, all_waves},
                                         {"Compress", compress, twice},
                                         {"ReverseSequence", reverse_sequence, twice},
                                         {"TensorScatter", tensor_scatter, twice},
                                         {"CausalConvWithState", causal_conv, causal_conv_bound},
                                         {"LinearAttention", linear_attention, linear_attention_bound},
                                         {"Col2Im", col2im, columns_bound},
                                         {"Det", det, first_input}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
