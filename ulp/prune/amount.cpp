#include "ulp/prune/amount.h"

#include <algorithm>
#include <cmath>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"

namespace ulp::prune {

int64_t Amount::to_prune(const std::string& what, int64_t total, int64_t remaining) const {
  constexpr const char* kWhere = "prune.Amount";
  const bool of_all = of == AmountOf::all;
  const int64_t n = of_all ? total : remaining;
  const int64_t pruned = of_all ? total - remaining : 0;
  if (count) {
    if (*count < 0) fail(kWhere, "expected a count >= 0 for ", what, ", got ", *count);
    if (*count > n) {
      fail(kWhere, "expected a count of at most ", n, ", which is all that ", of_all ? "there is" : "is left",
           ", for ", what, ", got ", *count);
    }
    return std::max<int64_t>(0, *count - pruned);
  }
  if (!(fraction >= 0 && fraction <= 1))
    fail(kWhere, "expected a fraction in [0, 1] for ", what, ", got ", fraction);
  const auto target = static_cast<int64_t>(std::nearbyint(fraction * static_cast<double>(n)));
  return std::max<int64_t>(0, target - pruned);
}

void Amount::visit_fields(FieldVisitor& visit) {
  visit({.name = "count", .help = "So many units, in the place of a fraction", .min = 0, .absent = ""},
        count);
  visit({"fraction", "Share of the units", 0, 1}, fraction);
  visit({"of", "What the share or count is of"}, of);
}

}  // namespace ulp::prune
