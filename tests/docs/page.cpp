#include "page.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <stdexcept>

namespace ulp::docs {

namespace fs = std::filesystem;

namespace {

/// The text after `key` in a comment `<!-- key: text -->`; empty for any other line.
std::string comment_text(const std::string& line, const std::string& key) {
  const std::string start = "<!-- " + key + ": ", end = " -->";
  if (!line.starts_with(start) || !line.ends_with(end)) return {};
  return line.substr(start.size(), line.size() - start.size() - end.size());
}

Block opened_at(const std::vector<std::string>& lines, size_t fence) {
  Block block;
  block.language = lines[fence].substr(3);
  block.first_line = fence + 2;
  if (fence > 0) {
    block.sample = comment_text(lines[fence - 1], "sample");
    block.excuse = comment_text(lines[fence - 1], "not compiled");
  }
  return block;
}

}  // namespace

Page read_page(const fs::path& root, const std::string& path) {
  std::ifstream in(root / path);
  if (!in) throw std::runtime_error("there is no page " + path);
  Page page{.path = path, .lines = {}, .blocks = {}};
  for (std::string line; std::getline(in, line);) page.lines.push_back(line);
  bool open = false;
  for (size_t i = 0; i < page.lines.size(); ++i) {
    if (page.lines[i].starts_with("```")) {
      open = !open;
      if (open) page.blocks.push_back(opened_at(page.lines, i));
    } else if (open) {
      page.blocks.back().lines.push_back(page.lines[i]);
    }
  }
  if (open) throw std::runtime_error(path + ": the last block does not end");
  return page;
}

std::vector<std::string> all_pages(const fs::path& root) {
  std::vector<std::string> pages = {"README.md", "SECURITY.md", "fuzz/README.md"};
  for (const char* folder : {"docs", "bench/notes", "bench/peers"}) {
    for (const auto& entry : fs::directory_iterator(root / folder)) {
      if (entry.path().extension() == ".md") pages.push_back(fs::relative(entry.path(), root).string());
    }
  }
  std::ranges::sort(pages);
  return pages;
}

std::string sample_folder(const std::string& path) {
  std::string name = fs::path(path).stem().string();
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

}  // namespace ulp::docs
