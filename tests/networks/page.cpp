#include "page.h"

#include <sstream>
#include <stdexcept>

#include "expected.h"
#include "stages.h"

namespace ulp::test {

namespace {

constexpr const char* kBegin = "<!-- networks: begin -->\n";
constexpr const char* kEnd = "<!-- networks: end -->\n";

/// "a, b, c" in lines of at most 150 columns.
std::string name_list(const std::vector<std::string>& names) {
  constexpr size_t kColumns = 150;
  std::string text, line;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string word = "`" + names[i] + "`" + (i + 1 < names.size() ? "," : ".");
    if (!line.empty() && line.size() + word.size() >= kColumns) {
      text += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return text + line + "\n";
}

std::string networks_part() {
  std::vector<std::string> whole;
  std::ostringstream rows;
  for (const Network& network : networks()) {
    const auto found = kMissing.find(network.name);
    if (found == kMissing.end()) {
      whole.push_back(network.name);
      continue;
    }
    for (const Missing& missing : found->second)
      rows << "| " << network.name << " | " << missing.stages << " | `" << missing.says << "` | "
           << missing.why << " |\n";
  }
  std::ostringstream out;
  out << "Of " << networks().size() << " networks, " << whole.size() << " go through every stage:\n\n"
      << name_list(whole);
  if (!rows.str().empty())
    out << "\nThe others stop at the stages that stand here, with a part of what is said there. Their other "
           "stages work.\n\n"
        << "| network | stages | says | why |\n|---|---|---|---|\n"
        << rows.str();
  return out.str();
}

}  // namespace

std::string with_networks(const std::string& page) {
  const size_t begin = page.find(kBegin), end = page.find(kEnd);
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    throw std::runtime_error("expected the marks of the networks in the page, got none");
  return page.substr(0, begin) + kBegin + networks_part() + page.substr(end);
}

}  // namespace ulp::test
