#include "ulp/prune/structured/shapley.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "ulp/base/error.h"
#include "ulp/graph/passes/pass.h"
#include "ulp/prune/structured/group_subgraph.h"

namespace ulp::prune {

namespace {

constexpr int64_t kLeastOrders = 3;  // before intervals end a group

/// Student's t, two-sided 95 %, of so many degrees of freedom; beyond the table its next smaller entry, which is wider.
double student_t(int64_t freedom) {
  static constexpr std::array<double, 30> kTable = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                                    2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                                                    2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                                                    2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
  if (freedom < 1) return std::numeric_limits<double>::infinity();
  if (freedom <= 30) return kTable[static_cast<size_t>(freedom) - 1];
  return freedom < 60 ? 2.042 : freedom < 120 ? 2.000 : 1.980;
}

/// n! if it is at most `most`, else 0.
int64_t orders_of(int64_t units, int64_t most) {
  int64_t count = 1;
  for (int64_t i = 2; i <= units; ++i) {
    if (count > most / i) return 0;
    count *= i;
  }
  return count;
}

/// Mean and deviation of each unit, order by order (Welford 1962).
class Tally {
 public:
  explicit Tally(int64_t units) : means_(static_cast<size_t>(units)), squares_(means_.size()) {}

  void add(const std::vector<double>& growth) {
    ++count_;
    for (size_t u = 0; u < means_.size(); ++u) {
      const double before = growth[u] - means_[u];
      means_[u] += before / static_cast<double>(count_);
      squares_[u] += before * (growth[u] - means_[u]);
    }
  }
  const std::vector<double>& means() const { return means_; }
  std::vector<double> standard_errors() const {
    std::vector<double> result;
    const auto n = static_cast<double>(count_);
    for (const double squares : squares_)
      result.push_back(count_ > 1 ? std::sqrt(squares / (n - 1) / n)
                                  : std::numeric_limits<double>::infinity());
    return result;
  }
  int64_t count() const { return count_; }

  bool narrow(double interval) const {
    if (interval <= 0 || count_ < kLeastOrders) return false;
    double largest = 0;
    for (const double mean : means_) largest = std::max(largest, std::abs(mean));
    const double t = student_t(count_ - 1);
    return std::ranges::all_of(standard_errors(),
                               [&](double error) { return t * error <= interval * largest; });
  }

 private:
  int64_t count_ = 0;
  std::vector<double> means_, squares_;
};

/// The orders of one group, one after the other.
class Orders {
 public:
  Orders(int64_t units, int64_t most, uint64_t seed, size_t group) : order_(static_cast<size_t>(units)) {
    std::iota(order_.begin(), order_.end(), int64_t{0});
    const int64_t all = orders_of(units, most);
    exact_ = all > 0;
    count_ = exact_ ? all : most;
    std::seed_seq words{seed & 0xffffffffu, seed >> 32, static_cast<uint64_t>(group)};
    random_.seed(words);
  }
  bool exact() const { return exact_; }
  int64_t count() const { return count_; }
  const std::vector<int64_t>& next() {
    if (exact_) {
      if (!first_) std::ranges::next_permutation(order_);
      first_ = false;
      return order_;
    }
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_() % i]);
    return order_;
  }

 private:
  std::vector<int64_t> order_;
  bool exact_ = false, first_ = true;
  int64_t count_ = 0;
  std::mt19937_64 random_;
};

class Sampler {
 public:
  Sampler(const graph::GraphModule& module, const std::vector<std::vector<at::Tensor>>& batches,
          const ShapleyLoss& loss)
      : batches_(batches), loss_(loss), graph_(module.graph().clone()) {
    graph::strip_training(*graph_);
    double items = 0;
    for (const auto& inputs : batches) {
      weights_.push_back(inputs.empty() || inputs[0].dim() == 0 ? 1 : static_cast<double>(inputs[0].size(0)));
      items += weights_.back();
    }
    if (!(items > 0)) fail("prune.shapley", "expected batches with items, got none");
    for (double& weight : weights_) weight /= items;
    graph::GraphModule whole(graph_->clone());
    whole.eval();
    const at::NoGradGuard no_grad;
    for (size_t b = 0; b < batches.size(); ++b) losses_.push_back(loss_of(whole.forward_all(batches[b]), b));
  }

  const graph::Graph& graph() const { return *graph_; }
  int64_t passes() const { return passes_; }

  Tally sample(GroupSubgraph& suffix, const Group& group, Orders& orders, double interval) {
    std::vector<std::vector<at::Tensor>> values;
    for (const auto& inputs : batches_) values.push_back(suffix.boundary(inputs));
    Tally tally(group.units);
    while (tally.count() < orders.count()) {
      tally.add(growth(suffix, values, orders.next()));
      if (!orders.exact() && tally.narrow(interval)) break;
    }
    return tally;
  }

 private:
  /// What the loss grows by with each unit when they go in this order.
  std::vector<double> growth(GroupSubgraph& suffix, const std::vector<std::vector<at::Tensor>>& values,
                             const std::vector<int64_t>& order) {
    std::vector<double> result(order.size());
    for (size_t b = 0; b < batches_.size(); ++b) {
      suffix.start(batches_[b], values[b]);
      double before = losses_[b];
      for (const int64_t unit : order) {
        suffix.zero(unit);
        const double after = loss_of(suffix.run(), b);
        ++passes_;
        result[static_cast<size_t>(unit)] += weights_[b] * (after - before);
        before = after;
      }
    }
    return result;
  }

  double loss_of(const std::vector<at::Tensor>& results, size_t batch) const {
    const double loss = loss_(results, static_cast<int64_t>(batch));
    if (!std::isfinite(loss)) fail("prune.shapley", "expected a loss that is a number, got ", loss);
    return loss;
  }

  const std::vector<std::vector<at::Tensor>>& batches_;
  const ShapleyLoss& loss_;
  std::shared_ptr<graph::Graph> graph_;
  std::vector<double> weights_, losses_;
  int64_t passes_ = 0;
};

}  // namespace

void ShapleyOptions::validate() const {
  if (permutations < 1) fail("prune.shapley", "expected permutations of at least 1, got ", permutations);
  if (!(interval >= 0)) fail("prune.shapley", "expected an interval of at least 0, got ", interval);
}

double ShapleyValues::half_width(size_t group, size_t unit) const {
  const double error = standard_errors.at(group).at(unit);
  return error == 0 ? 0 : error * student_t(permutations.at(group) - 1);
}

ShapleyValues shapley_values(const graph::GraphModule& module, const Groups& groups,
                             const std::vector<std::vector<at::Tensor>>& batches, const ShapleyLoss& loss,
                             const ShapleyOptions& options) {
  options.validate();
  if (batches.empty()) fail("prune.shapley", "expected batches to run on, got none");
  if (!loss) fail("prune.shapley", "expected a loss, got none");
  Sampler sampler(module, batches, loss);
  const Tracker tracker(sampler.graph(), groups.options);
  ShapleyValues result;
  for (size_t g = 0; g < groups.groups.size(); ++g) {
    const Group& group = groups.groups[g];
    GroupSubgraph suffix(sampler.graph(), tracker, group);
    Orders orders(group.units, options.permutations, options.seed, g);
    const Tally tally = sampler.sample(suffix, group, orders, options.interval);
    result.values.push_back(tally.means());
    result.standard_errors.push_back(orders.exact() ? std::vector<double>(tally.means().size())
                                                    : tally.standard_errors());
    result.permutations.push_back(tally.count());
    result.nodes.push_back(suffix.nodes());
  }
  result.passes = sampler.passes();
  return result;
}

}  // namespace ulp::prune
