#include "ulp/lower/sign_thresholds.h"

#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

namespace ulp::lowering {

namespace {

using graph::Graph;

constexpr int64_t kNumbersAtOnce = int64_t{1} << 22;  // the chain's ops hold several copies of them

// Whole sums are all tried, real numbers halved.

/// What a column of signs, from the smallest number to the largest, needs.
struct Column {
  int64_t
      first;  ///< index of the first sign that differs from the one before; the number of signs where none does
  bool starts;  ///< the first sign
  bool single;  ///< no further change
};

Column column_of(const at::Tensor& signs, int64_t channel) {
  const auto at = signs.accessor<bool, 2>();
  const int64_t count = signs.size(0);
  Column column{.first = count, .starts = at[0][channel], .single = true};
  for (int64_t i = 1; i < count; ++i) {
    if (at[i][channel] == at[i - 1][channel]) continue;
    if (column.first < count) column.single = false;
    if (column.first == count) column.first = i;
  }
  return column;
}

/// f32 numbers in their order: -max is the smallest.
int64_t rank_of(float x) {
  const auto bits = std::bit_cast<int32_t>(x);
  return bits >= 0 ? bits : int64_t{std::numeric_limits<int32_t>::min()} - bits;
}

float number_of(int64_t rank) {
  if (rank >= 0) return std::bit_cast<float>(static_cast<int32_t>(rank));
  return std::bit_cast<float>(static_cast<int32_t>(int64_t{std::numeric_limits<int32_t>::min()} - rank));
}

at::Tensor numbers_of(const std::vector<int64_t>& ranks) {
  const at::Tensor numbers = at::empty({1, static_cast<int64_t>(ranks.size())}, at::kFloat);
  for (size_t c = 0; c < ranks.size(); ++c) numbers.mutable_data_ptr<float>()[c] = number_of(ranks[c]);
  return numbers;
}

/// Numbers of every size and around each threshold, where signs are as the thresholds say.
bool stands(const Graph& graph, const ChannelChain& chain, const SignThresholds& found) {
  constexpr int64_t kSteps = 256;
  const int64_t channels = found.threshold.numel(), most = rank_of(std::numeric_limits<float>::max());
  const at::Tensor numbers = at::empty({kSteps + 7, channels}, at::kFloat);
  for (int64_t c = 0; c < channels; ++c) {
    const int64_t middle =
        std::clamp(rank_of(found.threshold.const_data_ptr<float>()[c]), -most + 3, most - 3);
    for (int64_t i = 0; i < kSteps + 7; ++i) {
      const int64_t rank = i < kSteps ? -most + 2 * most / (kSteps - 1) * i : middle + i - kSteps - 3;
      numbers.mutable_data_ptr<float>()[i * channels + c] = number_of(rank);
    }
  }
  const at::Tensor signs = signs_of(graph, chain, numbers);
  return signs.defined() && signs.equal(numbers.ge(found.threshold).logical_xor(found.flip));
}

}  // namespace

SignThresholds sum_thresholds(const Graph& graph, const ChannelChain& chain, int64_t most, bool even_steps,
                              std::string& why) {
  const int64_t channels = chain.start->meta->sizes[static_cast<size_t>(chain.dim)].offset;
  const int64_t step = even_steps ? 2 : 1;
  const at::Tensor sums = at::arange(-most, most + 1, step, at::kFloat);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& some : sums.split(std::max<int64_t>(1, kNumbersAtOnce / channels))) {
    parts.push_back(signs_of(graph, chain, some.unsqueeze(1).expand({-1, channels}).contiguous()));
    if (parts.back().defined()) continue;
    why = "its signs depend on the memory format";
    return {};
  }
  const at::Tensor signs = at::cat(parts);
  SignThresholds found{at::empty({channels}, at::kInt), at::empty({channels}, at::kBool)};
  for (int64_t c = 0; c < channels; ++c) {
    const Column column = column_of(signs, c);
    if (!column.single) {
      why = "the sign of channel " + std::to_string(c) + " changes more than once with the sum";
      return {};
    }
    // Constant channels: every sum is beyond the threshold, or none.
    const bool constant = column.first == signs.size(0);
    const int64_t threshold = !constant ? -most + step * column.first : column.starts ? -most : most + 1;
    found.threshold.mutable_data_ptr<int32_t>()[c] = static_cast<int32_t>(threshold);
    found.flip.mutable_data_ptr<bool>()[c] = !constant && column.starts;
  }
  return found;
}

SignThresholds number_thresholds(const Graph& graph, const ChannelChain& chain) {
  const auto channels = static_cast<size_t>(chain.start->meta->sizes[static_cast<size_t>(chain.dim)].offset);
  const int64_t most = rank_of(std::numeric_limits<float>::max());
  std::vector<int64_t> low(channels, -most), high(channels, most);
  const at::Tensor first = signs_of(graph, chain, numbers_of(low)),
                   last = signs_of(graph, chain, numbers_of(high));
  if (!first.defined() || !last.defined()) return {};
  // The sign at `low` is the first one, that at `high` the last one, until they are neighbours.
  for (int step = 0; step < 33; ++step) {
    std::vector<int64_t> middle(channels);
    for (size_t c = 0; c < channels; ++c) middle[c] = low[c] + (high[c] - low[c]) / 2;
    const at::Tensor signs = signs_of(graph, chain, numbers_of(middle));
    if (!signs.defined()) return {};
    for (size_t c = 0; c < channels; ++c) {
      const bool as_first = signs.const_data_ptr<bool>()[c] == first.const_data_ptr<bool>()[c];
      (as_first ? low : high)[c] = middle[c];
    }
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto count = static_cast<int64_t>(channels);
  SignThresholds found{at::empty({count}, at::kFloat), at::empty({count}, at::kBool)};
  for (size_t c = 0; c < channels; ++c) {
    const bool starts = first.const_data_ptr<bool>()[c], constant = starts == last.const_data_ptr<bool>()[c];
    const float beyond = starts ? -kInfinity : kInfinity;
    found.threshold.mutable_data_ptr<float>()[c] = constant ? beyond : number_of(high[c]);
    found.flip.mutable_data_ptr<bool>()[c] = !constant && starts;
  }
  return stands(graph, chain, found) ? found : SignThresholds{};
}

}  // namespace ulp::lowering
