// Attention that is spelled out: softmax(q k^T scale + mask) v.
#include <ATen/record_function.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ulp/exchange/onnx_import/patterns.h"

namespace ulp::exchange::onnx_import {

namespace {

using at::Tensor;

/// What was found so far, from the last product back.
struct Found {
  std::string value = {}, probabilities = {}, scores = {}, mask = {};
  bool visible = false;  ///< the mask says what may be seen, in bools
  /// What a query that sees no key gets: LibTorch's zeros, where a choice by the mask makes them; or where
  /// NaN becomes zeros; else what softmax makes of the scores.
  enum class Blind { zeros, zeros_of_nan, softmax } blind = Blind::softmax;
  bool infinite = true;  ///< hidden scores are -inf, not a low number
  double dropout = 0, scale = 1;
  std::string query = {}, key = {};  ///< the key [..., head, time]
};

bool is_zero(Call& call, const std::string& value) {
  const Slot* known = call.analysis().follows_inputs(value) ? nullptr : call.run().known(value, call.node());
  return known != nullptr && known->value.numel() == 1 && known->value.item<double>() == 0;
}

/// A number that hides a score: nothing of the softmax is left for it.
bool hides(Call& call, const std::string& value) {
  constexpr double kLow = -3e38, kLowHalf = -65504;
  const Slot* known = call.analysis().follows_inputs(value) ? nullptr : call.run().known(value, call.node());
  if (known == nullptr || known->value.numel() != 1 || !known->value.is_floating_point()) return false;
  return known->value.item<double>() <= (known->value.scalar_type() == at::kHalf ? kLowHalf : kLow);
}

bool is_infinite(Call& call, const std::string& value) {
  return std::isinf(call.run().known(value, call.node())->value.item<double>());
}

/// Dropout, and zeros where all is hidden.
void strip_probabilities(Call& call, Found& found) {
  if (const FileNode* dropout = maker_of(call, found.probabilities, "Dropout")) {
    Call inner(call.run(), *dropout, Call::As::calls);
    found.dropout = inner.has(1) ? inner.number(1) : inner.attribute("ratio", 0.5);
    found.probabilities = dropout->inputs[0];
  }
  const FileNode* choice = maker_of(call, found.probabilities, "Where");
  if (choice == nullptr || choice->inputs.size() != 3) return;
  if (is_zero(call, choice->inputs[2])) {
    found.mask = choice->inputs[0];
    found.visible = true;
    found.blind = Found::Blind::zeros;
    found.probabilities = choice->inputs[1];
  } else if (is_zero(call, choice->inputs[1]) && maker_of(call, choice->inputs[0], "IsNaN") != nullptr) {
    found.blind = Found::Blind::zeros_of_nan;
    found.probabilities = choice->inputs[2];
  }
}

/// The mask of the scores. False for one that is not known here.
bool strip_mask(Call& call, Found& found) {
  if (const FileNode* choice = maker_of(call, found.scores, "Where")) {
    if (choice->inputs.size() != 3 || !hides(call, choice->inputs[2])) return false;
    if (found.visible && found.mask != choice->inputs[0]) return false;
    found.mask = choice->inputs[0];
    found.visible = true;
    found.infinite = is_infinite(call, choice->inputs[2]);
    found.scores = choice->inputs[1];
    return true;
  }
  if (found.visible) return false;
  const FileNode* sum = maker_of(call, found.scores, "Add");
  if (sum == nullptr) return true;
  for (const size_t i : {0, 1}) {
    const Factors factors = factors_of(call, sum->inputs.at(i));
    if (factors.values.size() != 1 || maker_of(call, factors.values[0], "MatMul") == nullptr) continue;
    found.mask = sum->inputs.at(1 - i);
    found.scores = sum->inputs[i];
    return true;
  }
  return false;
}

/// q k^T and the scale.
bool find_product(Call& call, Found& found) {
  const Factors factors = factors_of(call, found.scores);
  const FileNode* product =
      factors.values.size() == 1 ? maker_of(call, factors.values[0], "MatMul") : nullptr;
  if (product == nullptr || product->inputs.size() != 2) return false;
  const Factors query = factors_of(call, product->inputs[0]), key = factors_of(call, product->inputs[1]);
  if (query.values.size() != 1 || key.values.size() != 1) return false;
  found.query = query.values[0];
  found.key = key.values[0];
  found.scale = factors.number * query.number * key.number;
  return found.scale > 0;
}

/// The key [..., time, head]: what was transposed, or the transpose.
Tensor key_of(Call& call, const Found& found) {
  if (const FileNode* turn = maker_of(call, found.key, "Transpose")) {
    const Tensor x = call.run().tensor(turn->inputs[0], call.node());
    std::vector<int64_t> order(static_cast<size_t>(x.dim()));
    for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(d);
    if (order.size() >= 2) std::swap(order[order.size() - 1], order[order.size() - 2]);
    const Call inner(call.run(), *turn, Call::As::calls);
    if (inner.attribute("perm", std::vector<int64_t>()) == order) return x;
  }
  return at::transpose(call.run().tensor(found.key, call.node()), -2, -1);
}

/// Whether a mask that is known shows each query itself and what is before it.
bool is_causal(Call& call, const Found& found) {
  const Slot* known =
      call.analysis().follows_inputs(found.mask) ? nullptr : call.run().known(found.mask, call.node());
  if (known == nullptr || known->value.dim() < 2) return false;
  const at::DisableRecordFunctionGuard beside_the_capture;
  const Tensor& mask = known->value;
  const int64_t rows = mask.size(-2), columns = mask.size(-1);
  if (rows * columns != mask.numel() || rows < 2) return false;
  const Tensor shown = at::reshape(mask, {rows, columns});
  const Tensor lower = at::tril(at::ones({rows, columns}, at::kBool));
  if (found.visible) return shown.scalar_type() == at::kBool && at::equal(shown, lower);
  if (!shown.is_floating_point()) return false;
  constexpr double kLow = -3e38;
  return at::equal(at::eq(shown, 0), lower) && at::equal(at::gt(shown, kLow), lower);
}

/// True where each query of a mask that is known sees a key.
bool shows_a_key(Call& call, const Found& found) {
  const Slot* known =
      call.analysis().follows_inputs(found.mask) ? nullptr : call.run().known(found.mask, call.node());
  if (known == nullptr || known->value.dim() < 1) return false;
  const at::DisableRecordFunctionGuard beside_the_capture;
  const Tensor& mask = known->value;
  if (found.visible) return mask.scalar_type() == at::kBool && at::all(at::any(mask, -1)).item<bool>();
  constexpr double kHalfOfLow = -1.5e38, kHalfOfLowHalf = -32752;
  return mask.is_floating_point() &&
         at::all(at::any(at::gt(mask, mask.scalar_type() == at::kHalf ? kHalfOfLowHalf : kHalfOfLow), -1))
             .item<bool>();
}

/// Whether a query that sees no key gets LibTorch's zeros, or there is none.
bool blind_queries_are_zeros(Call& call, const Found& found) {
  if (found.mask.empty() || found.blind == Found::Blind::zeros) return true;
  if (found.blind == Found::Blind::zeros_of_nan && found.infinite) return true;
  return shows_a_key(call, found);
}

bool is_last(Call& call, const FileNode& softmax, int64_t rank) {
  constexpr int64_t kOneDimension = 13;
  const Call inner(call.run(), softmax, Call::As::calls);
  const int64_t axis = inner.attribute("axis", int64_t{call.opset() < kOneDimension ? 1 : -1});
  return axis == -1 || axis == rank - 1;
}

}  // namespace

Tensor attention_of(Call& product) {
  if (product.inputs() != 2) return {};
  Found found{.value = product.name(1), .probabilities = product.name(0)};
  if (!product.analysis().follows_inputs(found.probabilities)) return {};
  strip_probabilities(product, found);
  const FileNode* softmax = maker_of(product, found.probabilities, "Softmax");
  if (softmax == nullptr) return {};
  found.scores = softmax->inputs[0];
  if (!strip_mask(product, found) || !find_product(product, found)) return {};
  Run& run = product.run();
  const Tensor query = run.tensor(found.query, product.node()),
               value = run.tensor(found.value, product.node());
  const int64_t rank = query.dim();
  if (rank < 3 || value.dim() != rank || !is_last(product, *softmax, rank)) return {};
  const Tensor key = key_of(product, found);
  const auto leading = [&](const Tensor& x) { return x.sizes().slice(0, static_cast<size_t>(rank - 2)); };
  if (key.dim() != rank || leading(key) != leading(query) || leading(value) != leading(query)) return {};
  const bool causal = !found.mask.empty() && is_causal(product, found);
  if (!causal && !blind_queries_are_zeros(product, found)) return {};
  std::optional<Tensor> mask;
  if (!found.mask.empty() && !causal) {
    mask = run.tensor(found.mask, product.node());
    if (mask->dim() > rank) return {};
  }
  constexpr double kRelative = 1e-5;
  const double usual = 1 / std::sqrt(static_cast<double>(query.size(-1)));
  std::optional<double> scale;
  if (std::abs(found.scale - usual) > kRelative * usual) scale = found.scale;
  const double dropout = product.training() ? found.dropout : 0.0;
  return at::scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale);
}

}  // namespace ulp::exchange::onnx_import
