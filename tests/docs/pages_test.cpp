// What the pages point at is there: samples, links, headings and paths.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "page.h"

namespace {

namespace fs = std::filesystem;
using ulp::docs::Page;

const fs::path kRoot = ULP_SOURCE_DIR;

template <typename Visit>
void for_each_page(Visit visit) {
  for (const std::string& path : ulp::docs::all_pages(kRoot)) visit(ulp::docs::read_page(kRoot, path));
}

/// Calls visit(match, "PAGE:LINE") for each match of the pattern on each line.
template <typename Visit>
void for_each_match(const Page& page, const std::regex& pattern, Visit visit) {
  for (size_t i = 0; i < page.lines.size(); ++i) {
    const std::string& line = page.lines[i];
    for (auto at = std::sregex_iterator(line.begin(), line.end(), pattern); at != std::sregex_iterator();
         ++at)
      visit(*at, page.path + ":" + std::to_string(i + 1));
  }
}

/// All sources of this folder, one after the other.
std::string sources_of_this_test() {
  std::ostringstream all;
  for (const auto& entry : fs::directory_iterator(kRoot / "tests/docs")) {
    if (entry.path().extension() == ".cpp") all << std::ifstream(entry.path()).rdbuf();
  }
  return all.str();
}

TEST(Pages, EveryBlockOfCodeIsCompiledOrSaysWhyNot) {
  const std::string sources = sources_of_this_test();
  int samples = 0;
  for_each_page([&](const Page& page) {
    for (const auto& block : page.blocks) {
      if (block.language != "cpp" && block.language != "c") continue;
      const std::string where = page.path + ":" + std::to_string(block.first_line);
      if (!block.excuse.empty()) continue;
      ASSERT_FALSE(block.sample.empty())
          << where << ": expected <!-- sample: NAME --> or <!-- not compiled: REASON --> above the block";
      const std::string name = ulp::docs::sample_folder(page.path) + "/" + block.sample;
      EXPECT_NE(sources.find("#include \"" + name + ".inc\""), std::string::npos)
          << where << ": no test includes " << name << ".inc";
      EXPECT_NE(sources.find("#include \"" + name + ".includes.h\""), std::string::npos)
          << where << ": no test includes " << name << ".includes.h";
      ++samples;
    }
  });
  EXPECT_GE(samples, 10);
}

/// Headers in folders below ulp/ may move: what programs include is directly in it.
TEST(Pages, SamplesIncludeTheHeadersOfRooms) {
  static const std::regex pattern(R"(#include [<"](ulp/[^>"]+)[>"])");
  int includes = 0;
  for_each_page([&](const Page& page) {
    for_each_match(page, pattern, [&](const std::smatch& match, const std::string& where) {
      ++includes;
      EXPECT_EQ(match[1].str().find('/', 4), std::string::npos) << where << ": " << match[1];
    });
  });
  EXPECT_GT(includes, 50);
}

/// A heading's name in links, as GitHub makes it: lower case, '-' for spaces, letters, digits, '-' and '_' only.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading.substr(heading.find_first_not_of("# "))) {
    const auto u = static_cast<unsigned char>(c);
    if (c == ' ') anchor += '-';
    if (std::isalnum(u) || c == '-' || c == '_') anchor += static_cast<char>(std::tolower(u));
  }
  return anchor;
}

bool has_heading(const std::string& path, const std::string& anchor) {
  const Page page = ulp::docs::read_page(kRoot, path);
  return std::ranges::any_of(page.lines, [&](const std::string& line) {
    return line.starts_with("#") && anchor_of(line) == anchor;
  });
}

TEST(Pages, EveryLinkLeadsToAFileAndAHeading) {
  static const std::regex pattern(R"(\]\(([^)#\s]*)(?:#([^)\s]*))?\))");
  int links = 0;
  for_each_page([&](const Page& page) {
    for_each_match(page, pattern, [&](const std::smatch& match, const std::string& where) {
      const std::string file = match[1], heading = match[2];
      if (file.starts_with("http")) return;
      const fs::path target =
          file.empty() ? fs::path(page.path) : (fs::path(page.path).parent_path() / file).lexically_normal();
      ++links;
      ASSERT_TRUE(fs::exists(kRoot / target)) << where << ": no file " << target;
      if (heading.empty()) return;
      EXPECT_TRUE(has_heading(target.string(), heading)) << where << ": " << target << " has no #" << heading;
    });
  });
  EXPECT_GT(links, 30);
}

TEST(Pages, TheIndexNamesEveryPage) {
  const Page index = ulp::docs::read_page(kRoot, "docs/README.md");
  std::string text;
  for (const std::string& line : index.lines) text += line + '\n';
  for_each_page([&](const Page& page) {
    const fs::path path = page.path;
    if (path == "README.md" || path == "docs/README.md") return;
    const std::string link = path.parent_path() == "docs" ? path.filename().string() : "../" + path.string();
    EXPECT_NE(text.find("](" + link + ")"), std::string::npos) << "docs/README.md does not link to " << path;
  });
}

/// Every file and folder of the project, from its root, without what is built or downloaded.
const std::set<std::string>& tree() {
  static const std::set<std::string> paths = [] {
    std::set<std::string> found;
    for (const char* folder :
         {"ulp", "cli", "tests", "bench", "examples", "python", "scripts", "cmake", "docs", "fuzz"}) {
      found.insert(folder);
      for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
        found.insert(fs::relative(entry.path(), kRoot).string());
    }
    return found;
  }();
  return paths;
}

/// A path with "<op>" or "*" for any name and "{h,cpp}" for either, as a pattern of whole paths.
std::regex pattern_of(const std::string& path) {
  std::string pattern = std::regex_replace(path, std::regex(R"(\.)"), R"(\.)");
  pattern = std::regex_replace(pattern, std::regex(R"(<[^>]*>|\*)"), "[^/]+");
  pattern = std::regex_replace(pattern, std::regex(R"(\{([^,}]*),([^}]*)\})"), "(?:$1|$2)");
  return std::regex(pattern);
}

bool is_there(std::string path) {
  while (!path.empty() && std::string("./,-").find(path.back()) != std::string::npos) path.pop_back();
  if (path.ends_with('>') && path.find('<') == std::string::npos) path.pop_back();  // #include <ulp/ulp.h>
  if (path.find_first_of("<*{") == std::string::npos)
    return tree().contains(path) || tree().contains(path + ".cpp");  // a program by its source
  const std::regex pattern = pattern_of(path);
  return std::ranges::any_of(tree(),
                             [&](const std::string& file) { return std::regex_match(file, pattern); });
}

TEST(Pages, EveryPathExists) {
  static const std::regex from_root(
      R"((?:^|[^\w./<-]|#include <)((?:ulp|cli|tests|bench|examples|scripts|cmake|docs|fuzz)/[\w./*<>{},-]+))");
  int paths = 0;
  for_each_page([&](const Page& page) {
    for_each_match(page, from_root, [&](const std::smatch& match, const std::string& where) {
      EXPECT_TRUE(is_there(match[1])) << where << ": there is no " << match[1];
      ++paths;
    });
  });
  EXPECT_GT(paths, 60);
}

TEST(Pages, SourcesAreNamedFromTheRoot) {
  static const std::regex source(R"(`([\w.-]+/[\w./<>*{},-]*\.(?:h|cpp|py|sh))`)");
  for_each_page([&](const Page& page) {
    for_each_match(page, source, [&](const std::smatch& match, const std::string& where) {
      EXPECT_TRUE(is_there(match[1]))
          << where << ": " << match[1] << " is no path from the root of the project";
    });
  });
}

}  // namespace
