// What was measured of layers that can run in several forms, without their zeros, in bf16 or in blocks by
// rows: one entry for all that are alike, kept in a file where a caller names one. The file is a cache: what
// it lacks is measured, and a file that cannot be written is done without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::runtime {

/// A form that is faster by more than this, or slower, was not measured.
inline constexpr double kLargestRatio = 1000;
/// What measuring a layer may take at most, in bytes.
inline constexpr size_t kMostMeasuringBytes = size_t{64} << 20;

/// The best other form of a layer, or of layers, at one number of items.
struct FormFinding {
  int64_t items = 1;
  std::string kernel{};  ///< of the form; empty where none is meant for so many items
  double faster = 0;  ///< the plain form's time by its time, up to kLargestRatio; 0 where there is no kernel
};

/// Not for several threads at once.
class TimingCache {
 public:
  TimingCache() = default;
  /// Reads the file where there is one; an empty path is no file. `most_bytes`: what measuring may take,
  /// where that is less than kMostMeasuringBytes. `most_seconds`: after which no further layer is measured.
  /// Throws ulp::Error naming the file where it holds something else or its folder is not there.
  ULP_API explicit TimingCache(std::filesystem::path path, size_t most_bytes = kMostMeasuringBytes,
                               double most_seconds = std::numeric_limits<double>::infinity());

  /// What measuring a layer may take.
  size_t most_bytes() const { return most_bytes_; }
  /// Whether there is time to measure another one.
  bool has_time() const { return spent_ < most_seconds_; }
  void spend(double seconds) { spent_ += seconds; }

  bool empty() const { return layers_.empty(); }
  /// Null for a layer that was not measured.
  const std::vector<FormFinding>* find(const std::string& layer) const;
  void put(const std::string& layer, std::vector<FormFinding> findings);
  /// Writes the file, if there is one and something came since. Where that fails all goes on without it.
  void save() noexcept;

 private:
  void write() const;

  std::filesystem::path path_;
  size_t most_bytes_ = kMostMeasuringBytes;
  double most_seconds_ = std::numeric_limits<double>::infinity(), spent_ = 0;
  std::map<std::string, std::vector<FormFinding>> layers_;
  bool changed_ = false;
};

}  // namespace ulp::runtime
