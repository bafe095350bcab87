#include "ulp/quant/weights/bit_allocation.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "ulp/base/error.h"

namespace ulp::quant {
namespace {

/// At least 1 of a coarse resolution, so that the coarsest one leaves one sum of each step.
int64_t units_of(int64_t bytes, int64_t resolution) {
  return resolution == 1 ? bytes : std::max<int64_t>(1, bytes / resolution + (bytes % resolution != 0));
}

}  // namespace

BitAllocations::BitAllocations(const std::vector<std::vector<BitChoice>>& weights, size_t most_states) {
  for (const std::vector<BitChoice>& choices : weights) {
    if (choices.empty()) fail("quant.BitAllocations", "expected choices for each weight, got none");
    for (const BitChoice& one : choices) {
      if (one.bytes < 0 || std::isnan(one.loss))
        fail("quant.BitAllocations", "expected bytes >= 0 and a loss, got ", one.bytes, " and ", one.loss);
    }
  }
  while (!solve(weights, most_states)) resolution_ *= 2;
  if (steps_.empty()) return;
  sums_ = steps_.back();
  // With a resolution bytes as they are may be fewer for a later one of less loss.
  int64_t least = INT64_MAX;
  for (auto sum = sums_.rbegin(); sum != sums_.rend(); ++sum) {
    if (sum->bytes >= least) sum->units = -1;
    least = std::min(least, sum->bytes);
  }
  std::erase_if(sums_, [](const Sum& sum) { return sum.units < 0; });
}

bool BitAllocations::solve(const std::vector<std::vector<BitChoice>>& weights, size_t most_states) {
  steps_.clear();
  std::vector<Sum> before = {Sum{}};
  for (const std::vector<BitChoice>& choices : weights) {
    std::vector<Sum> all;
    all.reserve(before.size() * choices.size());
    for (size_t i = 0; i < before.size(); ++i) {
      for (size_t k = 0; k < choices.size(); ++k) {
        all.push_back({.bytes = before[i].bytes + choices[k].bytes,
                       .units = before[i].units + units_of(choices[k].bytes, resolution_),
                       .loss = before[i].loss + choices[k].loss,
                       .before = static_cast<uint32_t>(i),
                       .choice = static_cast<uint32_t>(k)});
      }
    }
    std::stable_sort(all.begin(), all.end(), [](const Sum& a, const Sum& b) {
      return std::tuple(a.units, a.loss, a.bytes) < std::tuple(b.units, b.loss, b.bytes);
    });
    std::vector<Sum> kept;
    for (const Sum& sum : all) {
      if (kept.empty() || sum.loss < kept.back().loss) kept.push_back(sum);
    }
    if (kept.size() > std::max<size_t>(most_states, 1)) return false;
    before = kept;
    steps_.push_back(std::move(kept));
  }
  return true;
}

std::vector<size_t> BitAllocations::choices(size_t i) const {
  std::vector<size_t> choices(steps_.size());
  const Sum* sum = &sums_.at(i);
  for (size_t step = steps_.size(); step-- > 0;) {
    choices[step] = sum->choice;
    if (step > 0) sum = &steps_[step - 1][sum->before];
  }
  return choices;
}

size_t BitAllocations::within_bytes(int64_t most) const {
  const auto end =
      std::partition_point(sums_.begin(), sums_.end(), [&](const Sum& sum) { return sum.bytes <= most; });
  return end == sums_.begin() ? size() : static_cast<size_t>(end - sums_.begin()) - 1;
}

size_t BitAllocations::within_loss(double most) const {
  const auto begin =
      std::partition_point(sums_.begin(), sums_.end(), [&](const Sum& sum) { return sum.loss > most; });
  return static_cast<size_t>(begin - sums_.begin());
}

}  // namespace ulp::quant
