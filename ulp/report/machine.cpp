#include "ulp/report/machine.h"

#include <sys/utsname.h>
#include <torch/version.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "ulp/base/cpu_usage.h"
#include "ulp/report/format.h"
#include "ulp/version.h"

namespace ulp::report {
namespace {

std::string trim(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\"");
  const size_t last = text.find_last_not_of(" \t\"\r\n");
  return first == std::string::npos ? std::string() : text.substr(first, last - first + 1);
}

// The value behind the first line that starts with `key` and has `separator` next.
std::string field(const char* path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t at = line.find(separator);
    if (at != std::string::npos && trim(line.substr(0, at)) == key) return trim(line.substr(at + 1));
  }
  return {};
}

std::string instruction_sets() {
  std::istringstream words(field("/proc/cpuinfo", "flags", ':'));
  std::set<std::string> have;
  for (std::string word; words >> word;) have.insert(word);
  std::string out;
  for (const char* name :
       {"avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
        "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"}) {
    if (have.count(name) != 0) out += (out.empty() ? "" : " ") + std::string(name);
  }
  return out;
}

void add(std::vector<Fact>& facts, const char* name, const std::string& value) {
  if (!value.empty()) facts.push_back({name, clean_line(value)});
}

}  // namespace

std::vector<Fact> machine_facts() {
  std::vector<Fact> facts;
  add(facts, "Processor", field("/proc/cpuinfo", "model name", ':'));
  add(facts, "Logical cores", std::to_string(usable_cores()));
  add(facts, "Instruction sets", instruction_sets());
  const std::string memory = field("/proc/meminfo", "MemTotal", ':');  // "24123456 kB"
  if (!memory.empty()) add(facts, "Memory", format_bytes(std::strtod(memory.c_str(), nullptr) * 1024));
  add(facts, "System", field("/etc/os-release", "PRETTY_NAME", '='));
  utsname system{};
  if (uname(&system) == 0)
    add(facts, "Kernel", std::string(system.sysname) + " " + system.release + " " + system.machine);
#if defined(__clang__)
  add(facts, "Compiler", "clang " __clang_version__);
#elif defined(__GNUC__)
  add(facts, "Compiler", "gcc " __VERSION__);
#endif
  add(facts, "LibTorch", TORCH_VERSION);
  add(facts, "ulp", ULP_VERSION);
  return facts;
}

}  // namespace ulp::report
