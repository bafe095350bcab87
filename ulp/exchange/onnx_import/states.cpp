// States of sequences: caches of keys, convolutions of the past, and recurrences without a nonlinearity.
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

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

/// With the places of the update, and those of its first sequence, which are there for an empty batch, too.
double scattered_bound(Call& call) {
  double update = 1, longest = 0;
  for (const int64_t size : call.sizes(1)) {
    update *= static_cast<double>(size);
    longest = std::max(longest, static_cast<double>(size));
  }
  return twice(call) + update + longest;
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

}  // namespace

ConverterTable state_table() {
  static constexpr Converter kTable[] = {{"TensorScatter", tensor_scatter, scattered_bound},
                                         {"CausalConvWithState", causal_conv, causal_conv_bound},
                                         {"LinearAttention", linear_attention, linear_attention_bound}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
