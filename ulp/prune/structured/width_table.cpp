#include "ulp/prune/structured/width_table.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "ulp/base/atomic_file.h"
#include "ulp/base/error.h"
#include "ulp/base/read_file.h"
#include "ulp/base/recipe_file.h"

namespace ulp::prune {

namespace {

constexpr int kWidthTableVersion = 1;

}  // namespace

void WidthPoint::visit_fields(FieldVisitor& visit) {
  visit({.name = "width", .help = "Channels", .min = 1}, width);
  visit({.name = "seconds", .help = "Of one run", .min = 0, .above_min = true}, seconds);
}

void WidthCurve::visit_fields(FieldVisitor& visit) {
  visit({.name = "kernel", .help = "What makes the channels and reads them"}, kernel);
  visit({.name = "points", .help = "Seconds by width"}, points, WidthPoint{});
}

double WidthCurve::seconds(int64_t width) const {
  const auto next = std::ranges::lower_bound(points, width, {}, &WidthPoint::width);
  if (next != points.end()) return next->seconds;
  const WidthPoint& last = points.back();
  const int64_t step = last.width - points[points.size() - 2].width, tiles = (width + step - 1) / step;
  return last.seconds * static_cast<double>(tiles * step) / static_cast<double>(last.width);
}

const WidthCurve* WidthTable::find(WidthKernel kernel) const {
  const auto found = std::ranges::find(curves, kernel, &WidthCurve::kernel);
  return found == curves.end() ? nullptr : &*found;
}

void WidthTable::visit_fields(FieldVisitor& visit) {
  visit({.name = "machine", .help = "What it was measured on"}, machine);
  visit({.name = "curves", .help = "Seconds by kernel and width"}, curves, WidthCurve{});
}

void WidthTable::validate() const {
  check_limits("prune.WidthTable", *this);
  std::set<WidthKernel> seen;
  for (const WidthCurve& curve : curves) {
    const char* name = enum_name(curve.kernel);
    if (!seen.insert(curve.kernel).second)
      fail("prune.WidthTable", "expected one curve of ", name, ", got two");
    if (curve.points.size() < 2)
      fail("prune.WidthTable", "expected at least two widths of ", name, ", got ", curve.points.size());
    if (std::ranges::adjacent_find(curve.points, std::greater_equal<>(), &WidthPoint::width) !=
        curve.points.end())
      fail("prune.WidthTable", "expected rising widths of ", name, ", got others");
    for (const WidthPoint& point : curve.points) {
      if (!(point.seconds > 0) || !std::isfinite(point.seconds))
        fail("prune.WidthTable", "expected positive seconds of ", name, ", got ", point.seconds);
    }
  }
}

std::string WidthTable::to_json() const {
  return write_recipe(*this, kWidthTableVersion);
}

WidthTable WidthTable::from_json(const std::string& text) {
  WidthTable table;
  read_recipe(text, table, kWidthTableVersion);
  return table;
}

void WidthTable::save(const std::filesystem::path& path) const {
  AtomicFile file(path);
  file.write(to_json());
  file.commit();
}

WidthTable WidthTable::load(const std::filesystem::path& path) {
  const std::string text = read_file("prune.WidthTable", path);
  try {
    return from_json(text);
  } catch (const Error& error) {
    fail_file("prune.WidthTable", "in '", path.string(), "': ", error.what());
  }
}

}  // namespace ulp::prune
