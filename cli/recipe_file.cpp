#include "cli/recipe_file.h"

#include <fstream>
#include <sstream>
#include <string_view>

#include "ulp/base/atomic_file.h"
#include "ulp/base/parse_json.h"

namespace ulp::cli {

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) fail_file("cli.read_text", "could not read '", path, "'");
  return text.str();
}

void expect_json(const std::string& path, const std::string& text) {
  try {
    parse_json(text);
  } catch (const nlohmann::json::exception& error) {
    std::string_view reason = error.what();
    if (const size_t name = reason.find("] "); name != std::string_view::npos) reason.remove_prefix(name + 2);
    fail_file("cli.read_recipe", "expected a recipe in JSON in '", path, "', got ", reason);
  }
}

void write_text(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace ulp::cli
