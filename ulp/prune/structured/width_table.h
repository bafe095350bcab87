// How long this machine's kernels take for each number of channels: widths that cost no more than narrower ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"
#include "ulp/base/fields.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/groups.h"
#include "ulp/prune/structured/latency_target.h"

namespace ulp::prune {

/// What makes channels and reads them again.
enum class WidthKernel : uint8_t {
  convolution,  ///< two 3x3 convolutions
  pointwise,    ///< two 1x1 convolutions
  depthwise,    ///< a 1x1, a depthwise 3x3 and a 1x1 convolution
  linear        ///< two linear layers
};

/// Seconds at one width.
struct ULP_API WidthPoint {
  int64_t width = 1;
  double seconds = 0;
  void visit_fields(FieldVisitor& visit);
  bool operator==(const WidthPoint&) const = default;
};

/// Seconds of one kind by the channels in the middle, at rising widths.
struct ULP_API WidthCurve {
  WidthKernel kernel = WidthKernel::convolution;
  std::vector<WidthPoint> points;
  void visit_fields(FieldVisitor& visit);
  /// Seconds at any width: of the next measured one, as kernels work in whole tiles; beyond the last one, of the next that is a
  /// multiple of the distance of the last two, in proportion.
  double seconds(int64_t width) const;
  bool operator==(const WidthCurve&) const = default;
};

/// What was measured on a machine.
struct ULP_API WidthTable {
  static constexpr const char* kType = "ulp.prune.WidthTable";
  std::string machine;  ///< whose, in the caller's words
  std::vector<WidthCurve> curves;

  /// Null for a kind that was not measured.
  const WidthCurve* find(WidthKernel kernel) const;

  void visit_fields(FieldVisitor& visit);
  /// Throws ulp::Error for a kind given twice, and a curve without two points, of widths that do not rise or of seconds that are not
  /// positive.
  void validate() const;
  /// {"type": "ulp.prune.WidthTable", "version": 1, ...}; from_json() throws FileError for other text, an unknown field, a value of
  /// another kind or a newer version, and ulp::Error as validate() does.
  std::string to_json() const;
  static WidthTable from_json(const std::string& text);
  /// As files, whole or not at all. Throw ulp::Error and FileError naming the file.
  void save(const std::filesystem::path& path) const;
  static WidthTable load(const std::filesystem::path& path);
  bool operator==(const WidthTable&) const = default;
};

/// What is measured.
struct ULP_API WidthMeasurement {
  std::vector<WidthKernel> kernels = {WidthKernel::convolution, WidthKernel::pointwise,
                                      WidthKernel::depthwise, WidthKernel::linear};
  std::vector<int64_t> widths = default_widths();  ///< rising, at least two
  int64_t outer = 64;                              ///< channels before and behind
  int64_t image = 14;                              ///< height and width of images
  int64_t rows = 16;                               ///< that a linear layer takes for each item
  int64_t repeats = 5;  ///< of all widths in turn; their median counts, so that a disturbance spoils no width
  std::function<void(int64_t done, int64_t total)> progress = {};  ///< after each measurement; may be empty

  /// 1 to 4, multiples of 4 to 64, of 8 to 128, of 16 to 256.
  static std::vector<int64_t> default_widths();
  /// Throws ulp::Error naming the field.
  void validate() const;
};

/// Measures small networks of random weights; `seconds` says how (ulp::app::measure_width_table). Throws ulp::Error for a time
/// that is no positive number.
ULP_API WidthTable measure_widths(const MeasureSeconds& seconds, const WidthMeasurement& what = {},
                                  const std::string& machine = {});

/// Widths of groups that cost no more: for UnitSelection::widen.
class ULP_API MeasuredWidths {
 public:
  /// The kind of each group is that of its largest weight, or depthwise where it has such a convolution. `tolerance`: share of seconds
  /// that counts as no more, in [0, 1). Throws ulp::Error for another tolerance and as table.validate() does.
  MeasuredWidths(const graph::Graph& graph, const Groups& groups, WidthTable table, double tolerance = 0.02);

  /// The most units, from `kept` up to all, that take at most (1 + tolerance) times the seconds of the fastest of these
  /// widths; `kept` for a kind that was not measured.
  int64_t operator()(size_t group, int64_t kept) const;

 private:
  struct Width {
    const WidthCurve* curve = nullptr;
    int64_t units = 0, channels = 1;  // of a unit
  };
  std::shared_ptr<const WidthTable> table_;
  std::vector<Width> widths_;
  double tolerance_;
};

}  // namespace ulp::prune

template <>
struct ulp::EnumNames<ulp::prune::WidthKernel> {
  using enum ulp::prune::WidthKernel;
  static constexpr std::array<Word<ulp::prune::WidthKernel>, 4> list{
      {{convolution, "convolution"}, {pointwise, "pointwise"}, {depthwise, "depthwise"}, {linear, "linear"}}};
};
