#include "ulp/prune/permute_inputs.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "ulp/base/error.h"

namespace ulp::prune {
namespace {

constexpr const char* kNMInputOrderWhere = "prune.n_m_input_order";
constexpr int64_t kLargestGroup = 16;

/// [inputs][rows]: the scores of each input by itself.
using Columns = std::vector<std::vector<double>>;

Columns columns_of(const at::Tensor& scores) {
  const at::Tensor by_input = scores.detach()
                                  .to(at::kCPU, at::kDouble)
                                  .unsqueeze(-1)
                                  .flatten(2)
                                  .transpose(0, 1)
                                  .flatten(1)
                                  .contiguous();
  const double* values = by_input.const_data_ptr<double>();
  const int64_t inputs = by_input.size(0), rows = by_input.size(1);
  Columns columns;
  for (int64_t i = 0; i < inputs; ++i) {
    columns.emplace_back(values + i * rows, values + (i + 1) * rows);
    for (const double value : columns.back()) {
      if (!(value >= 0)) fail(kNMInputOrderWhere, "expected scores >= 0, got ", value, " for input ", i);
    }
  }
  return columns;
}

class PermutationSearch {
 public:
  PermutationSearch(Columns columns, int64_t n, int64_t m)
      : columns_(std::move(columns)), n_(n), m_(m), order_(columns_.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    for (size_t g = 0; g < groups(); ++g) kept_.push_back(kept_of(g));
  }

  double kept() const { return std::accumulate(kept_.begin(), kept_.end(), 0.0); }
  const std::vector<int64_t>& order() const { return order_; }

  /// False where no swap gains.
  bool sweep() {
    bool gained = false;
    for (size_t a = 0; a < groups(); ++a)
      for (size_t b = a + 1; b < groups(); ++b) gained |= best_swap(a, b);
    return gained;
  }

 private:
  size_t groups() const { return order_.size() / static_cast<size_t>(m_); }

  /// The sum over all rows of the n best of the group's m.
  double kept_of(size_t group) const {
    const size_t rows = columns_[0].size(), m = static_cast<size_t>(m_);
    std::array<const double*, kLargestGroup> members{};
    for (size_t k = 0; k < m; ++k) members[k] = columns_[static_cast<size_t>(order_[group * m + k])].data();
    std::array<double, kLargestGroup> row{};
    double sum = 0;
    for (size_t r = 0; r < rows; ++r) {
      for (size_t k = 0; k < m; ++k) row[k] = members[k][r];
      std::partial_sort(row.begin(), row.begin() + n_, row.begin() + m_, std::greater<>());
      for (int64_t k = 0; k < n_; ++k) sum += row[static_cast<size_t>(k)];
    }
    return sum;
  }

  bool best_swap(size_t a, size_t b) {
    const size_t m = static_cast<size_t>(m_);
    const double now = kept_[a] + kept_[b];
    double best = now * (1 + 1e-12);  // a gain that is no rounding
    std::array<size_t, 2> place{};
    std::array<double, 2> best_kept{};
    for (size_t i = a * m; i < a * m + m; ++i) {
      for (size_t j = b * m; j < b * m + m; ++j) {
        std::swap(order_[i], order_[j]);
        const double of_a = kept_of(a), of_b = kept_of(b);
        std::swap(order_[i], order_[j]);
        if (of_a + of_b <= best) continue;
        best = of_a + of_b;
        place = {i, j};
        best_kept = {of_a, of_b};
      }
    }
    if (best_kept[0] + best_kept[1] == 0) return false;
    std::swap(order_[place[0]], order_[place[1]]);
    kept_[a] = best_kept[0];
    kept_[b] = best_kept[1];
    return true;
  }

  Columns columns_;
  int64_t n_, m_;
  std::vector<int64_t> order_;
  std::vector<double> kept_;
};

}  // namespace

InputOrder n_m_input_order(const at::Tensor& scores, int64_t n, int64_t m, int64_t sweeps) {
  if (m < 2 || m > kLargestGroup || n < 1 || n >= m)
    fail(kNMInputOrderWhere, "expected n in [1, m) and m in [2, ", kLargestGroup, "], got ", n, ':', m);
  if (!scores.defined() || scores.dim() < 2 || scores.numel() == 0 || scores.size(1) % m != 0)
    fail(kNMInputOrderWhere, "expected scores of inputs in a multiple of ", m, ", got ",
         scores.defined() ? scores.sizes() : at::IntArrayRef());
  PermutationSearch search(columns_of(scores), n, m);
  InputOrder found{{}, search.kept(), 0};
  for (int64_t sweep = 0; sweep < sweeps && search.sweep(); ++sweep) {
  }
  found.inputs = search.order();
  found.kept = search.kept();
  return found;
}

}  // namespace ulp::prune
