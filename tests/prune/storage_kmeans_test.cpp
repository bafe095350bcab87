#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "error_of.h"
#include "ulp/prune/storage/sharing/kmeans.h"

namespace ulp::prune {
namespace {

std::vector<double> bell(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> numbers(count);
  for (double& number : numbers) number = normal(random);
  return numbers;
}

/// Lloyd's algorithm number by number, from these centroids until nothing changes.
std::vector<double> plain_lloyd(const std::vector<double>& numbers, std::vector<double> centroids) {
  for (std::vector<size_t> before;;) {
    std::vector<size_t> members;
    for (const double number : numbers) {
      size_t best = 0;
      for (size_t i = 1; i < centroids.size(); ++i) {
        if (std::abs(number - centroids[i]) < std::abs(number - centroids[best])) best = i;
      }
      members.push_back(best);
    }
    if (members == before) return centroids;
    before = members;
    for (size_t i = 0; i < centroids.size(); ++i) {
      double sum = 0, count = 0;
      for (size_t at = 0; at < numbers.size(); ++at) {
        if (members[at] == i) sum += numbers[at], ++count;
      }
      if (count > 0) centroids[i] = sum / count;
    }
  }
}

double error_of_nearest(const std::vector<double>& numbers, const Clusters& clusters) {
  double error = 0;
  for (const double number : numbers)
    error += std::pow(number - clusters.centroids[clusters.nearest(number)], 2);
  return error;
}

TEST(StorageKMeans, IsLloydsAlgorithmFromEvenCentroids) {
  const std::vector<double> numbers = bell(500, 1);
  const auto [low, high] = std::ranges::minmax(numbers);
  std::vector<double> first;
  for (int i = 0; i < 8; ++i) first.push_back(low + (high - low) * i / 7);
  const std::vector<double> expected = plain_lloyd(numbers, first);
  const Clusters clusters = cluster(numbers, {.bits = 3});
  ASSERT_EQ(clusters.centroids.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(clusters.centroids[i], expected[i], 1e-12);
  EXPECT_NEAR(clusters.squared_error, error_of_nearest(numbers, clusters), 1e-9);
  EXPECT_LT(clusters.iterations, 100);
}

TEST(StorageKMeans, DensityStartsAtQuantiles) {
  const Clusters clusters =
      cluster({1, 2, 3, 4, 5, 6, 100, 200}, {.bits = 1, .init = CentroidInit::density, .iterations = 0});
  EXPECT_EQ(clusters.centroids, (std::vector<double>{3, 100}));
  EXPECT_EQ(clusters.iterations, 0);
}

TEST(StorageKMeans, RandomCentroidsAreDifferentNumbersAndFollowTheSeed) {
  std::vector<double> numbers(1000, 7.0);  // draws repeat
  for (int i = 0; i < 20; ++i) numbers.push_back(i);
  const auto start = [&](int64_t seed) {
    return cluster(numbers, {.bits = 4, .init = CentroidInit::random, .iterations = 0, .seed = seed})
        .centroids;
  };
  EXPECT_EQ(start(1).size(), 16U);
  EXPECT_EQ(start(1), start(1));
  EXPECT_NE(start(1), start(2));
  for (const double centroid : start(3)) EXPECT_NE(std::ranges::find(numbers, centroid), numbers.end());
}

TEST(StorageKMeans, EveryStartEndsWhereNoCentroidMoves) {
  const std::vector<double> numbers = bell(2000, 2);
  for (const CentroidInit init : {CentroidInit::linear, CentroidInit::density, CentroidInit::random}) {
    for (const int64_t bits : {1, 2, 5, 8}) {
      const Clusters clusters = cluster(numbers, {.bits = bits, .init = init, .iterations = 10000});
      EXPECT_TRUE(std::ranges::is_sorted(clusters.centroids));
      EXPECT_LE(clusters.centroids.size(), size_t{1} << bits);
      const std::vector<double> again = plain_lloyd(numbers, clusters.centroids);
      for (size_t i = 0; i < again.size(); ++i) EXPECT_NEAR(again[i], clusters.centroids[i], 1e-12);
      EXPECT_NEAR(clusters.squared_error, error_of_nearest(numbers, clusters), 1e-9);
    }
  }
}

TEST(StorageKMeans, TheOrderOfNumbersChangesNothing) {
  std::vector<double> numbers = bell(3000, 3);
  const Clusters first = cluster(numbers, {.bits = 5});
  std::ranges::reverse(numbers);
  std::rotate(numbers.begin(), numbers.begin() + 777, numbers.end());
  EXPECT_EQ(cluster(numbers, {.bits = 5}).centroids, first.centroids);
}

TEST(StorageKMeans, IterationsLowerTheError) {
  const std::vector<double> numbers = bell(2000, 4);
  double before = std::numeric_limits<double>::infinity();
  for (const int64_t iterations : {0, 1, 2, 5, 20}) {
    const Clusters clusters = cluster(numbers, {.bits = 4, .iterations = iterations});
    EXPECT_EQ(clusters.iterations, iterations);
    EXPECT_LT(clusters.squared_error, before);
    before = clusters.squared_error;
  }
}

TEST(StorageKMeans, FewDifferentNumbersAreTheirOwnCentroids) {
  EXPECT_EQ(cluster({3, -1, 3, 0.5, -1}, {.bits = 2}).centroids, (std::vector<double>{-1, 0.5, 3}));
  EXPECT_EQ(cluster({5}, {.bits = 1}).centroids, (std::vector<double>{5}));
  EXPECT_TRUE(cluster({}, {}).centroids.empty());
}

TEST(StorageKMeans, CentroidsWithoutMembersAreLeftOut) {
  const Clusters clusters = cluster({0, 0.1, 0.2, 0.3, 1000}, {.bits = 2});
  EXPECT_EQ(clusters.centroids.size(), 2U);
  EXPECT_NEAR(clusters.centroids[0], 0.15, 1e-12);
  EXPECT_EQ(clusters.centroids[1], 1000);
}

TEST(StorageKMeans, OfTwoCentroidsAtTheSameDistanceTheSmallerIsNearest) {
  const Clusters clusters{.centroids = {-1, 1, 4}};
  EXPECT_EQ(clusters.nearest(0), 0U);
  EXPECT_EQ(clusters.nearest(1e-9), 1U);
  EXPECT_EQ(clusters.nearest(2.5), 1U);
  EXPECT_EQ(clusters.nearest(-9), 0U);
  EXPECT_EQ(clusters.nearest(9), 2U);
}

TEST(StorageKMeans, BadOptionsAndNumbersAreRefused) {
  EXPECT_ERROR(cluster({1}, {.bits = 0}), "expected bits in [1, 8], got 0");
  EXPECT_ERROR(cluster({1}, {.bits = 9}), "expected bits in [1, 8], got 9");
  EXPECT_ERROR(cluster({1}, {.iterations = -1}), "expected iterations >= 0, got -1");
  EXPECT_ERROR(cluster({1, std::nan("")}, {}), "expected finite numbers, got nan");
  EXPECT_ERROR(cluster({1, std::numeric_limits<double>::infinity()}, {}), "expected finite numbers, got inf");
}

}  // namespace
}  // namespace ulp::prune
