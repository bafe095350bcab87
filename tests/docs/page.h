// A page of the documentation, as its tests read it: its lines, and its fenced blocks with what is said of them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ulp::docs {

/// What stands between ``` and ```.
struct Block {
  std::string language;            ///< the word after the opening fence: "cpp", "json" or none
  std::string sample;              ///< NAME of `<!-- sample: NAME -->` on the line above; empty: none
  std::string excuse;              ///< REASON of `<!-- not compiled: REASON -->` above; empty: none
  size_t first_line = 0;           ///< of the block's text in the page, from 1
  std::vector<std::string> lines;  ///< without the fences
};

struct Page {
  std::string path;  ///< from the root of the project: "docs/qat.md"
  std::vector<std::string> lines;
  std::vector<Block> blocks;
};

/// Throws std::runtime_error for a page that is missing or whose last block does not end.
Page read_page(const std::filesystem::path& root, const std::string& path);

/// README.md, SECURITY.md, fuzz/README.md, docs/*.md, bench/notes/*.md and bench/peers/*.md, sorted.
std::vector<std::string> all_pages(const std::filesystem::path& root);

/// The folder of a page's samples: its name in lower case ("readme", "weight-only").
std::string sample_folder(const std::string& path);

}  // namespace ulp::docs
