#include "cli/recipe_file.h"

#include <fstream>
#include <sstream>

#include "ulp/base/atomic_file.h"

namespace ulp::cli {

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) fail_file("cli.read_text", "could not read '", path, "'");
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace ulp::cli
