#include "ulp/base/nearest_names.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace ulp {

namespace {

constexpr size_t kShownNames = 3;
/// Names of strangers can be long; nobody needs to know what is near to those.
constexpr size_t kLongestCompared = 64;

std::string compared(std::string_view name) {
  const size_t space = name.rfind("::");
  if (space != std::string_view::npos) name.remove_prefix(space + 2);
  std::string letters(name.substr(0, kLongestCompared));
  std::ranges::transform(letters, letters.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return letters;
}

/// Levenshtein's distance: letters that are put in, left out or changed.
size_t changed_letters(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t before = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = before + (a[i - 1] == b[j - 1] ? 0 : 1);
      before = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_names(std::string_view name, std::vector<std::string_view> known) {
  std::ranges::sort(known);
  known.erase(std::unique(known.begin(), known.end()), known.end());
  const std::string wanted = compared(name);
  std::vector<std::pair<size_t, std::string_view>> ranked;
  for (const std::string_view one : known) ranked.emplace_back(changed_letters(wanted, compared(one)), one);
  std::ranges::sort(ranked);
  std::string text;
  for (size_t i = 0; i < std::min(ranked.size(), kShownNames); ++i)
    text.append(text.empty() ? "" : ", ").append(ranked[i].second);
  return text;
}

}  // namespace ulp
