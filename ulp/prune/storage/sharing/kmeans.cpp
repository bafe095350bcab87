#include "ulp/prune/storage/sharing/kmeans.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "ulp/base/error.h"

namespace ulp::prune {
namespace {

constexpr const char* kClusterWhere = "prune.cluster";

/// Rising numbers with the sums of all before each.
struct Sorted {
  std::vector<double> numbers, sums;
  explicit Sorted(std::vector<double> given) : numbers(std::move(given)), sums(numbers.size() + 1) {
    std::ranges::sort(numbers);
    for (size_t i = 0; i < numbers.size(); ++i) sums[i + 1] = sums[i] + numbers[i];
  }
  double mean(size_t begin, size_t end) const {
    const double mean = (sums[end] - sums[begin]) / static_cast<double>(end - begin);
    return std::clamp(mean, numbers[begin], numbers[end - 1]);  // sums are rounded
  }
};

std::vector<double> first_centroids(const std::vector<double>& sorted, const KMeansOptions& options) {
  const auto count = size_t{1} << options.bits;
  const double low = sorted.front(), high = sorted.back();
  std::vector<double> centroids;
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  for (size_t i = 0; i < count; ++i) {
    const auto part = static_cast<double>(i) / static_cast<double>(count - 1);
    if (options.init == CentroidInit::linear) {
      centroids.push_back(low * (1 - part) + high * part);
    } else if (options.init == CentroidInit::density) {
      centroids.push_back(sorted[(2 * i + 1) * sorted.size() / (2 * count)]);
    } else {
      // A number that was drawn already gives way to the next other one, round the end.
      auto at = sorted.begin() + static_cast<ptrdiff_t>(random() % sorted.size());
      while (std::ranges::find(centroids, *at) != centroids.end()) {
        at = std::upper_bound(at, sorted.end(), *at);
        if (at == sorted.end()) at = sorted.begin();
      }
      centroids.push_back(*at);
    }
  }
  std::ranges::sort(centroids);
  return centroids;
}

/// The end of each centroid's members among the sorted numbers.
std::vector<size_t> ends_of(const std::vector<double>& centroids, const std::vector<double>& sorted) {
  std::vector<size_t> ends;
  for (size_t i = 0; i + 1 < centroids.size(); ++i) {
    const double middle = std::midpoint(centroids[i], centroids[i + 1]);
    ends.push_back(static_cast<size_t>(std::ranges::upper_bound(sorted, middle) - sorted.begin()));
  }
  ends.push_back(sorted.size());
  return ends;
}

/// The different values of rising numbers; stops past `most`.
std::vector<double> different(const std::vector<double>& sorted, size_t most) {
  std::vector<double> values;
  for (const double number : sorted) {
    if (!values.empty() && values.back() == number) continue;
    values.push_back(number);
    if (values.size() > most) break;
  }
  return values;
}

}  // namespace

void KMeansOptions::visit_fields(FieldVisitor& visit) {
  visit({"bits", "Bits of a code: at most 2^bits shared values", 1, 8}, bits);
  visit({"init", "Where centroids start"}, init);
  visit({"iterations", "Iterations of k-means at most", 0}, iterations);
  visit({"seed", "Seed of random centroids"}, seed);
}

void KMeansOptions::validate() const {
  check_limits(kClusterWhere, *this);
}

size_t Clusters::nearest(double number) const {
  const auto above = static_cast<size_t>(std::ranges::lower_bound(centroids, number) - centroids.begin());
  if (above == 0) return 0;
  if (above == centroids.size()) return above - 1;
  return number <= std::midpoint(centroids[above - 1], centroids[above]) ? above - 1 : above;
}

Clusters cluster(std::vector<double> numbers, const KMeansOptions& options) {
  options.validate();
  const auto found = std::ranges::find_if_not(numbers, [](double number) { return std::isfinite(number); });
  if (found != numbers.end()) fail(kClusterWhere, "expected finite numbers, got ", *found);
  Clusters result;
  if (numbers.empty()) return result;
  const Sorted sorted(std::move(numbers));
  const auto most = size_t{1} << options.bits;
  result.centroids = different(sorted.numbers, most);
  if (result.centroids.size() <= most) return result;
  std::vector<double>& centroids = result.centroids;
  centroids = first_centroids(sorted.numbers, options);
  std::vector<size_t> ends = ends_of(centroids, sorted.numbers);
  while (result.iterations < options.iterations) {
    for (size_t i = 0, begin = 0; i < centroids.size(); begin = ends[i++]) {
      if (begin < ends[i]) centroids[i] = sorted.mean(begin, ends[i]);
    }
    ++result.iterations;
    if (const auto next = ends_of(centroids, sorted.numbers); next != std::exchange(ends, next)) continue;
    break;
  }
  std::vector<double> kept;
  for (size_t i = 0, begin = 0; i < centroids.size(); begin = ends[i++]) {
    if (begin == ends[i]) continue;
    kept.push_back(centroids[i]);
    for (size_t at = begin; at < ends[i]; ++at)
      result.squared_error += std::pow(sorted.numbers[at] - centroids[i], 2);
  }
  centroids = std::move(kept);
  return result;
}

}  // namespace ulp::prune
