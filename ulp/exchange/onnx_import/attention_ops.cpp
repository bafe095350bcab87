// Attention and RotaryEmbedding of ONNX's opset 23 and later.
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/exchange/onnx_import/converters.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

constexpr size_t kMask = 3, kPastKey = 4, kPastValue = 5, kValidKeys = 6;  // inputs
constexpr size_t kPresentKey = 1, kPresentValue = 2, kScores = 3;          // results

/// [batch, time, heads * size] -> [batch, heads, time, size].
Tensor split_heads(const Call& call, const Tensor& x, const char* heads) {
  if (x.dim() == 4) return x;
  const int64_t count = call.attribute(heads, int64_t{0});
  if (x.dim() != 3 || count < 1 || x.size(2) % count != 0)
    call.refuse("expected [batch, heads, time, size], or ", heads,
                " that divide the last of 3 dimensions, got ", x.sizes());
  return at::transpose(at::reshape(x, {x.size(0), x.size(1), count, x.size(2) / count}), 1, 2);
}

/// One Attention.
class WrittenAttention {
 public:
  explicit WrittenAttention(Call& call) : call_(call) {
    query_ = split_heads(call, call.x(0), "q_num_heads");
    key_ = split_heads(call, call.x(1), "kv_num_heads");
    value_ = split_heads(call, call.x(2), "kv_num_heads");
    causal_ = call.attribute("is_causal", int64_t{0}) != 0;
    softcap_ = call.attribute("softcap", 0.0);
    left_ = call.attribute("left_window_size", int64_t{-1});
    right_ = call.attribute("right_window_size", int64_t{-1});
    if (call.has(kPastKey) != call.has(kPastValue)) call.refuse("expected past keys and values, or none");
    if (call.has(kPastKey)) {
      before_ = call.x(kPastKey).size(2);
      key_ = at::cat({call.x(kPastKey), key_}, 2);
      value_ = at::cat({call.x(kPastValue), value_}, 2);
    }
  }

  void run() {
    call_.set(key_, kPresentKey);
    call_.set(value_, kPresentValue);
    const bool three = call_.x(0).dim() == 3;
    repeat_heads();
    const Tensor y =
        is_plain() ? at::scaled_dot_product_attention(query_, key_, value_, mask(), 0.0, causal_, scale())
                   : written();
    if (!three) return call_.set(y);
    const Tensor first = at::transpose(y, 1, 2);
    call_.set(at::reshape(first, {first.size(0), first.size(1), first.size(2) * first.size(3)}));
  }

 private:
  /// Several heads of queries share one of keys.
  void repeat_heads() {
    const int64_t queries = query_.size(1), keys = key_.size(1);
    if (queries == keys) return;
    if (keys < 1 || queries % keys != 0)
      call_.refuse("expected heads of keys that divide the ", queries, " of queries, got ", keys);
    key_ = at::repeat_interleave(key_, queries / keys, 1);
    value_ = at::repeat_interleave(value_, queries / keys, 1);
  }

  /// Whether LibTorch's operator is all of it.
  bool is_plain() const {
    const bool one_mask = !causal_ || (!call_.has(kMask) && before_ == 0);
    const bool whole = left_ < 0 && right_ < 0 && !call_.has(kValidKeys);
    return softcap_ == 0 && one_mask && whole && !call_.wants(kScores);
  }

  std::optional<double> scale() const {
    if (!call_.has_attribute("scale")) return std::nullopt;
    return call_.attribute("scale", 1.0);
  }

  /// As wide as the keys: what a shorter mask does not name is hidden.
  std::optional<Tensor> mask() const {
    if (!call_.has(kMask)) return std::nullopt;
    const Tensor given = call_.x(kMask);
    const int64_t missing = key_.size(2) - given.size(-1);
    if (missing <= 0) return given;
    if (given.scalar_type() == at::kBool) return at::constant_pad_nd(given, {0, missing}, 0);
    return at::constant_pad_nd(given, {0, missing}, -std::numeric_limits<double>::infinity());
  }

  /// What may be seen, as numbers to be added; undefined where all may.
  Tensor hidden() const {
    const auto hide = [&](const Tensor& visible) {
      const Tensor none = at::zeros({}, query_.options());
      return at::where(visible, none,
                       at::full({}, -std::numeric_limits<double>::infinity(), query_.options()));
    };
    Tensor all;
    const auto add = [&](const Tensor& visible) {
      const Tensor more = hide(visible);
      all = all.defined() ? at::add(all, more) : more;
    };
    if (const auto given = mask()) all = given->scalar_type() == at::kBool ? hide(*given) : *given;
    const Tensor columns = at::arange(key_.size(2), at::TensorOptions(at::kLong));
    if (call_.has(kValidKeys)) add(at::lt(columns, valid_keys()));
    if (!causal_ && left_ < 0 && right_ < 0) return all;
    // The place of each query among the keys.
    const Tensor rows = at::unsqueeze(at::arange(query_.size(2), at::TensorOptions(at::kLong)), 1);
    const Tensor places =
        call_.has(kValidKeys) ? at::add(rows, at::sub(valid_keys(), query_.size(2))) : at::add(rows, before_);
    if (causal_) add(at::le(columns, places));
    if (left_ >= 0) add(at::ge(columns, at::sub(places, left_)));
    if (right_ >= 0) add(at::le(columns, at::add(places, right_)));
    return all;
  }

  /// [batch, 1, 1, 1].
  Tensor valid_keys() const { return at::reshape(call_.x(kValidKeys), {-1, 1, 1, 1}); }

  Tensor written() {
    const double usual = 1 / std::sqrt(static_cast<double>(query_.size(3)));
    Tensor scores = at::mul(at::matmul(query_, at::transpose(key_, -2, -1)), scale().value_or(usual));
    const int64_t shown = call_.attribute("qk_matmul_output_mode", int64_t{0});
    const auto show = [&](int64_t mode, const Tensor& value) {
      if (shown == mode) call_.set(value, kScores);
    };
    show(0, scores);
    if (softcap_ > 0) scores = at::mul(at::tanh(at::div(scores, softcap_)), softcap_);
    show(1, scores);
    const Tensor bias = hidden();
    if (bias.defined()) scores = at::add(scores, bias);
    show(2, scores);
    Tensor shares = at::softmax(scores, -1);
    if (bias.defined()) {
      // Rows that see nothing give zeros.
      const Tensor blind = at::isneginf(at::amax(bias, -1, /*keepdim=*/true));
      shares = at::masked_fill(shares, blind, 0);
    }
    show(3, shares);
    return at::matmul(shares, value_);
  }

  Call& call_;
  Tensor query_, key_, value_;
  bool causal_ = false;
  double softcap_ = 0;
  int64_t before_ = 0;              ///< keys of steps before
  int64_t left_ = -1, right_ = -1;  ///< how far a query sees; -1: to the end
};

void attention(Call& call) {
  WrittenAttention(call).run();
}

/// Scores, masks and probabilities of all heads, and what is read.
double attention_bound(Call& call) {
  double all = 0;
  const auto elements_of = [&](size_t i) {
    double elements = 1;
    for (const int64_t size : call.sizes(i)) elements *= static_cast<double>(size);
    return elements;
  };
  for (size_t i = 0; i < call.inputs(); ++i) all += call.has(i) ? elements_of(i) : 0;
  const std::vector<int64_t> query = call.sizes(0), key = call.sizes(1);
  if (query.size() < 3 || key.size() < 3) return all;
  const auto length = [](const std::vector<int64_t>& sizes) {
    return static_cast<double>(sizes[sizes.size() - 2]);
  };
  const double heads = query.size() == 4 ? static_cast<double>(query[1])
                                         : static_cast<double>(call.attribute("q_num_heads", int64_t{1}));
  const double past =
      call.has(kPastKey) && call.sizes(kPastKey).size() == 4 ? length(call.sizes(kPastKey)) : 0;
  // Heads of keys may be repeated for each of the queries.
  return all * std::max(heads, 1.0) +
         4 * static_cast<double>(query[0]) * heads * length(query) * (length(key) + past);
}

/// Turns pairs of numbers by angles that follow the place in the text.
void rotary_embedding(Call& call) {
  const Tensor x = call.x(0);
  const bool three = x.dim() == 3;
  const Tensor heads = three ? split_heads(call, x, "num_heads") : x;
  if (heads.dim() != 4) call.refuse("expected 3 or 4 dimensions, got ", x.sizes());
  const int64_t given = call.attribute("rotary_embedding_dim", int64_t{0}), size = heads.size(3),
                turned = given == 0 ? size : given;
  if (turned > size || turned % 2 != 0)
    call.refuse("expected an even number of at most ", size, " to turn, got ", turned);
  const auto angles = [&](size_t i) {
    const Tensor cache = call.x(i);
    return at::unsqueeze(call.has(3) ? at::embedding(cache, call.x(3)) : cache, 1);
  };
  const Tensor cos = angles(1), sin = angles(2);
  const Tensor part = at::slice(heads, 3, 0, turned);
  const bool interleaved = call.attribute("interleaved", int64_t{0}) != 0;
  const Tensor a = interleaved ? at::slice(part, 3, 0, turned, 2) : at::slice(part, 3, 0, turned / 2),
               b = interleaved ? at::slice(part, 3, 1, turned, 2) : at::slice(part, 3, turned / 2, turned);
  const Tensor real = at::sub(at::mul(cos, a), at::mul(sin, b)),
               imaginary = at::add(at::mul(sin, a), at::mul(cos, b));
  Tensor y = interleaved ? at::flatten(at::stack({real, imaginary}, -1), 3) : at::cat({real, imaginary}, 3);
  if (turned < size) y = at::cat({y, at::slice(heads, 3, turned, size)}, 3);
  if (!three) return call.set(y);
  call.set(at::reshape(at::transpose(y, 1, 2), {x.size(0), x.size(1), x.size(2)}));
}

/// A gate times numbers.
void swiglu(Call& call) {
  const Tensor gate = call.x(0);
  const double alpha = call.attribute("alpha", 1.0);
  const Tensor opened = alpha == 1 ? at::silu(gate) : at::mul(gate, at::sigmoid(at::mul(gate, alpha)));
  call.set(at::mul(opened, call.x(1)));
}

double thrice(Call& call) {
  return 3 * first_input(call);
}

}  // namespace

ConverterTable attention_table() {
  static constexpr Converter kTable[] = {{"Attention", attention, attention_bound},
                                         {"RotaryEmbedding", rotary_embedding, thrice},
                                         {"SwiGLU", swiglu}};
  return kTable;
}

}  // namespace ulp::exchange::onnx_import
