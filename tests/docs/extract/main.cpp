// extract_samples ROOT PAGE FOLDER: writes each named sample of a page as FOLDER/NAME.inc (its statements) and
// FOLDER/NAME.includes.h (its #include lines). Errors of the compiler name the lines of the page.
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>

#include "page.h"

namespace {

namespace fs = std::filesystem;

void write_sample(const fs::path& page, const ulp::docs::Block& block, const fs::path& folder) {
  std::ofstream includes(folder / (block.sample + ".includes.h"));
  std::ofstream statements(folder / (block.sample + ".inc"));
  for (size_t i = 0; i < block.lines.size(); ++i) {
    std::ofstream& to = block.lines[i].starts_with("#include") ? includes : statements;
    to << "#line " << block.first_line + i << " \"" << page.string() << "\"\n" << block.lines[i] << '\n';
  }
  if (!includes.flush() || !statements.flush()) throw std::runtime_error("could not write " + block.sample);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: extract_samples ROOT PAGE FOLDER\n";
    return 2;
  }
  try {
    const fs::path root = argv[1], folder = argv[3];
    fs::remove_all(folder);
    fs::create_directories(folder);
    for (const auto& block : ulp::docs::read_page(root, argv[2]).blocks) {
      if (!block.sample.empty()) write_sample(root / argv[2], block, folder);
    }
  } catch (const std::exception& error) {
    std::cerr << "extract_samples: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
