// The rooms' dependencies run downward only: reads every #include and fails on an upward one.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>

namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

// Room -> the rooms it may include besides itself; the table of docs/concepts.md.
const std::map<std::string, Names>& allowed() {
  static const std::map<std::string, Names> table = {
      {"base", {}},
      {"formats", {"base"}},
      {"kernels", {"base", "formats"}},
      {"runtime", {"base", "formats", "kernels"}},
      {"graph", {"base"}},
      {"amp", {"base", "formats", "kernels", "graph", "report"}},
      {"quant", {"base", "formats", "kernels", "graph"}},
      {"lower", {"base", "graph", "quant", "runtime"}},
      {"io", {"base", "formats", "graph", "amp"}},
      {"models", {"base"}},
      {"report", {"base"}},
      {"train",
       {"base", "formats", "kernels", "runtime", "graph", "amp", "quant", "lower", "io", "models",
        "report"}}};
  return table;
}

const Names kWithoutTorch = {"base", "formats", "kernels", "runtime"};

template <typename Visit>
void for_each_include(const fs::path& file, Visit visit) {
  static const std::regex pattern(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (std::regex_search(line, match, pattern)) visit(match[1].str());
  }
}

TEST(Rooms, IncludeOnlyDownward) {
  const fs::path root = fs::path(ULP_SOURCE_DIR) / "ulp";
  int seen = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cpp") continue;
    const std::string room = fs::relative(entry.path(), root).begin()->string();
    if (room == entry.path().filename()) continue;  // ulp/ulp.h, the umbrella
    ASSERT_TRUE(allowed().contains(room)) << "room '" << room << "' is not in the table of this test";
    for_each_include(entry.path(), [&](const std::string& header) {
      ++seen;
      if (header.starts_with("ulp/")) {
        const std::string other = header.substr(4, header.find('/', 4) - 4);
        EXPECT_TRUE(other == room || allowed().at(room).contains(other))
            << entry.path() << " includes " << header << ": '" << room << "' may not use '" << other << "'";
      }
      const bool torch =
          header.starts_with("torch/") || header.starts_with("ATen/") || header.starts_with("c10/");
      EXPECT_FALSE(torch && kWithoutTorch.contains(room)) << entry.path() << " includes " << header;
    });
  }
  EXPECT_GT(seen, 50) << "the sources were not found under " << root;
}

/// Visits a header and every header of ours that it includes.
void check_light(const std::string& header, Names& seen) {
  if (!seen.insert(header).second) return;
  for_each_include(fs::path(ULP_SOURCE_DIR) / header, [&](const std::string& other) {
    EXPECT_NE(other, "torch/torch.h") << header;
    if (other.starts_with("ulp/")) check_light(other, seen);
  });
}

TEST(Rooms, TheUmbrellaHeaderIsLight) {
  Names seen;
  check_light("ulp/ulp.h", seen);
  EXPECT_GT(seen.size(), 10u);
}

}  // namespace
