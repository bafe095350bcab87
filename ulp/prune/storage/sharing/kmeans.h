// k-means of numbers: which few values stand for many.
#pragma once

#include <cstdint>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/base/fields.h"

namespace ulp::prune {

/// Where centroids start (Han, Mao and Dally 2016, "Deep compression", section 3.2).
enum class CentroidInit : uint8_t {
  /// Evenly between the smallest and the largest number, so that the rare large ones have centroids, too.
  linear,
  density,  ///< at evenly spaced quantiles
  random    ///< at numbers drawn from all (Forgy)
};

}  // namespace ulp::prune

template <>
struct ulp::EnumNames<ulp::prune::CentroidInit> {
  static constexpr std::array<Word<prune::CentroidInit>, 3> list = {
      {{prune::CentroidInit::linear, "linear", "evenly between the smallest and the largest weight"},
       {prune::CentroidInit::density, "density", "at evenly spaced quantiles"},
       {prune::CentroidInit::random, "random", "at weights drawn from all (Forgy)"}}};
};

namespace ulp::prune {

/// How numbers are clustered.
struct ULP_API KMeansOptions {
  int64_t bits = 6;  ///< of a code, 1..8: at most 2^bits centroids
  CentroidInit init = CentroidInit::linear;
  int64_t iterations = 100;  ///< at most; it ends sooner where nothing changes
  int64_t seed = 0;          ///< of random centroids
  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error naming the field.
  void validate() const;
  bool operator==(const KMeansOptions&) const = default;
};

/// Centroids of numbers.
struct ULP_API Clusters {
  std::vector<double> centroids;  ///< rising; each has members
  int64_t iterations = 0;         ///< that were made
  double squared_error = 0;       ///< the sum over all numbers of the squared distance to their centroid
  /// The nearest centroid; of two at the same distance the smaller.
  size_t nearest(double number) const;
};

/// Lloyd's algorithm (1982, "Least squares quantization in PCM") in double, on one thread: the same numbers
/// give the same centroids, in any order. A centroid without members stays where it is, and is left out at
/// the end. Numbers of at most 2^bits different values are their own centroids. Throws ulp::Error for bad
/// options and numbers that are not finite; no numbers give no centroids.
ULP_API Clusters cluster(std::vector<double> numbers, const KMeansOptions& options);

}  // namespace ulp::prune
