// What was measured of layers with zeros: one entry for all layers that are alike, kept in a file where a caller names one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ulp::runtime {

/// The best sparse form of a layer at one number of items.
struct SparseFinding {
  int64_t items = 1;
  std::string kernel{};  ///< of the form; empty where none is meant for so many items
  double faster = 0;     ///< the dense form's time by its time
};

/// Not for several threads at once.
class SparseTable {
 public:
  SparseTable() = default;
  /// Reads the file where there is one. Throws ulp::Error naming it where it holds something else.
  explicit SparseTable(std::filesystem::path path);

  /// Null for a layer that was not measured.
  const std::vector<SparseFinding>* find(const std::string& layer) const;
  void put(const std::string& layer, std::vector<SparseFinding> findings);
  /// Writes the file, if there is one and something came since. Throws ulp::Error where that fails.
  void save();

 private:
  std::filesystem::path path_;
  std::map<std::string, std::vector<SparseFinding>> layers_;
  bool changed_ = false;
};

}  // namespace ulp::runtime
