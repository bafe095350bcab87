#include "ulp/graph/capture/far_sizes.h"

#include <algorithm>
#include <bit>

#include "ulp/graph/capture/merge.h"

namespace ulp::graph {

namespace {

using Point = std::vector<int64_t>;

constexpr double kSmallBytes = 4.0 * (1 << 20);
constexpr double kSmallProducts = 268435456.0;  ///< multiplications by weights
/// Capture makes about five runs at the examples' sizes: these limits bound what far runs add.
constexpr double kMoreBytes = 2;
constexpr double kMoreSamples = 3;

/// Of a run that costs next to nothing, so that there may be several.
constexpr double kTinyShare = 1.0 / 4;
constexpr int64_t kTinyBatches[] = {13, 31, 54, 87, 131, 300};

constexpr int64_t kFarBatches[] = {1031, 515, 259, 131, 67, 35, 19, 9, 5};

/// What a run needs at sizes at which there was none.
class ExpectedCost {
 public:
  ExpectedCost(const Subject& subject, const Runs& runs) : example_(runs.eval[0].trace.sizes.values) {
    for (const auto& [name, attribute] : subject.attributes)
      weights_ += static_cast<double>(attribute.tensor.numel());
    const std::vector<TracedCall>& calls = runs.eval[0].trace.calls;
    for (size_t call = 0; call < calls.size(); ++call) {
      for (size_t i = 0; i < calls[call].metas.size(); ++i) add(runs, call, i);
    }
  }

  double bytes(const Point& point) const {
    double all = 0;
    for (const Seen& value : values_) {
      double one = value.element;
      for (size_t d = 0; d < value.sizes.size(); ++d) {
        const std::optional<SizeExpr>& expr = value.sizes[d];
        const double size = expr ? static_cast<double>(expr->at(point))
                                 : static_cast<double>(value.example[d]) * std::max(1.0, growth(point));
        one *= std::max(size, 0.0);
      }
      all += one;
    }
    return all;
  }

  /// `share`: of what a small run may need.
  bool small(const Point& point, double share = 1) const {
    double rows = 1;
    for (const int64_t size : point) rows *= static_cast<double>(std::max<int64_t>(size, 1));
    return bytes(point) <= share * kSmallBytes && rows * weights_ <= share * kSmallProducts;
  }

  bool affordable(const Point& point) const {
    const double more =
        example_[0] > 0 ? kMoreBytes + kMoreSamples / static_cast<double>(example_[0]) : kMoreBytes;
    return small(point) || bytes(point) <= more * bytes(example_);
  }

 private:
  struct Seen {
    double element = 0;
    std::vector<int64_t> example;
    std::vector<std::optional<SizeExpr>> sizes;
  };

  void add(const Runs& runs, size_t call, size_t i) {
    const TensorMeta& meta = runs.eval[0].trace.calls[call].metas[i];
    Seen value{.element = static_cast<double>(c10::elementSize(meta.dtype)), .example = {}, .sizes = {}};
    for (size_t d = 0; d < meta.sizes.size(); ++d) {
      std::vector<Point> points;
      std::vector<int64_t> sizes;
      for (const Run& run : runs.eval) {
        const std::vector<TensorMeta>& metas = run.trace.calls[call].metas;
        if (i >= metas.size() || d >= metas[i].sizes.size()) continue;
        points.push_back(run.trace.sizes.values);
        sizes.push_back(metas[i].sizes[d].offset);
      }
      value.example.push_back(meta.sizes[d].offset);
      value.sizes.push_back(fit(runs.grid, points, sizes));
    }
    values_.push_back(std::move(value));
  }

  double growth(const Point& point) const {
    double all = 1;
    for (size_t i = 0; i < point.size(); ++i)
      all *= static_cast<double>(point[i]) / static_cast<double>(std::max<int64_t>(example_[i], 1));
    return all;
  }

  Point example_;
  double weights_ = 0;
  std::vector<Seen> values_;
};

/// Lists of points without those that were seen, in another list or in a run.
class PointLists {
 public:
  explicit PointLists(const Runs& runs) : runs_(runs) {}

  void add(const std::vector<FarPoint>& points) {
    std::vector<FarPoint> list;
    for (const FarPoint& point : points) {
      const auto seen = [&](const Run& run) { return run.trace.sizes.values == point.sizes; };
      const auto listed = [&](const FarPoint& other) { return other.sizes == point.sizes; };
      if (std::ranges::any_of(runs_.eval, seen) || std::ranges::any_of(list, listed)) continue;
      const bool first = std::ranges::any_of(
          lists_, [&](const std::vector<FarPoint>& other) { return listed(other.front()); });
      if (!first) list.push_back(point);
    }
    if (!list.empty()) lists_.push_back(std::move(list));
  }

  std::vector<std::vector<FarPoint>> take() { return std::move(lists_); }

 private:
  const Runs& runs_;
  std::vector<std::vector<FarPoint>> lists_;
};

void add_batches(const OpenSizes& open, const ExpectedCost& cost, PointLists& lists) {
  const auto with_batch = [&](int64_t batch) {
    Point point = open.example;
    point[0] = batch;
    return FarPoint{point, cost.small(point)};
  };
  std::vector<FarPoint> many, powers;
  const int64_t seen = open.example[0] + 2;
  for (const int64_t batch : kFarBatches) {
    const FarPoint point = with_batch(batch);
    if (batch <= seen || !open.batch_range.contains(batch) || !cost.affordable(point.sizes)) continue;
    many.push_back(point);
    const auto half = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(batch)) / 2);
    if (point.small && half > seen) powers.push_back(with_batch(half));
  }
  lists.add({with_batch(open.batch_range.nearest(1))});
  lists.add(many);
  lists.add(powers);
  for (const int64_t batch : kTinyBatches) {
    const FarPoint point = with_batch(batch);
    if (batch > seen && open.batch_range.contains(batch) && cost.small(point.sizes, kTinyShare))
      lists.add({point});
  }
  if (open.batch_range.max == BatchRange::kAny) return;
  const FarPoint largest = with_batch(open.batch_range.max);
  if (cost.affordable(largest.sizes)) lists.add({largest});
}

/// The multiple of the dimension's step that is at least `size`.
int64_t rounded_up(const DynamicDimension& free, int64_t size) {
  return (size + free.multiple - 1) / free.multiple * free.multiple;
}

void add_free(const OpenSizes& open, const ExpectedCost& cost, PointLists& lists) {
  const auto with_free = [&](const auto& size_of) {
    Point point = open.example;
    for (size_t i = 0; i < open.free.size(); ++i) point[i + 1] = size_of(open.free[i], open.example[i + 1]);
    return FarPoint{point, cost.small(point)};
  };
  lists.add({with_free([](const DynamicDimension& free, int64_t) { return rounded_up(free, free.min); })});
  lists.add({with_free([](const DynamicDimension& free, int64_t example) {
    return rounded_up(free, (free.min + example) / 2);
  })});
  std::vector<FarPoint> large;
  constexpr int kHalvings = 6;
  for (int halvings = 0; halvings < kHalvings; ++halvings) {
    const FarPoint point = with_free([&](const DynamicDimension& free, int64_t example) {
      return (example + ((free.max - example) >> halvings)) / free.multiple * free.multiple;
    });
    if (cost.affordable(point.sizes)) large.push_back(point);
  }
  lists.add(large);
}

}  // namespace

std::vector<std::vector<FarPoint>> far_points(const Subject& subject, const OpenSizes& open,
                                              const Runs& runs) {
  const ExpectedCost cost(subject, runs);
  PointLists lists(runs);
  if (open.example[0] > 0) add_batches(open, cost, lists);
  if (!open.free.empty()) add_free(open, cost, lists);
  return lists.take();
}

}  // namespace ulp::graph
