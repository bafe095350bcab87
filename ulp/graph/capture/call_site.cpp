#include "ulp/graph/capture/call_site.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ulp/graph/capture/functionalize.h"
#include "ulp/graph/capture/scope.h"

namespace ulp::graph {
namespace {

/// The modules whose tensors calls read.
class Owners {
 public:
  explicit Owners(const Subject& subject) {
    for (const auto& [name, attribute] : subject.attributes)
      owners_.emplace(memory_key(attribute.tensor), parent_path(name));
  }

  /// Of the parameters and buffers among the arguments; nothing where there are none.
  std::optional<std::string> of(const TracedCall& call) const {
    std::vector<std::string> paths;
    for (const c10::IValue& input : call.inputs) {
      for_each_tensor(input, [&](const at::Tensor& tensor) {
        if (!tensor.defined()) return;
        const auto found = owners_.find(memory_key(tensor));
        if (found != owners_.end()) paths.push_back(found->second);
      });
    }
    return paths.empty() ? std::nullopt : std::optional(common_path(paths));
  }

 private:
  std::unordered_map<const void*, std::string> owners_;
};

/// The only module without tensors that is registered behind one path and before another, which may be empty.
std::string only_module_between(const Subject& subject, const std::string& after, const std::string& before) {
  const auto& modules = subject.modules;
  const auto at = [&](const std::string& path) {
    return std::ranges::find(modules, path, &std::pair<std::string, std::string>::first);
  };
  const auto first = after.empty() ? modules.begin() : at(after);
  const auto last = before.empty() ? modules.end() : at(before);
  std::string found;
  for (auto module = first; first < last && module != last; ++module) {
    const std::string prefix = module->first + ".";
    const auto inside = [&](const auto& entry) { return entry.first.starts_with(prefix); };
    if (std::ranges::any_of(subject.attributes, inside) || std::ranges::any_of(modules, inside)) continue;
    if (!found.empty()) return "";
    found = "'" + module->first + "' (" + module->second + ")";
  }
  return found;
}

}  // namespace

std::string place_of_call(const Subject& subject, const Trace& trace, size_t call) {
  if (call >= trace.calls.size()) return "";
  const Owners owners(subject);
  if (const auto own = owners.of(trace.calls[call]); own && !own->empty()) return " in '" + *own + "'";
  std::string after, before;
  for (size_t i = call; i-- > 0 && after.empty();) after = owners.of(trace.calls[i]).value_or("");
  for (size_t i = call + 1; i < trace.calls.size() && before.empty(); ++i)
    before = owners.of(trace.calls[i]).value_or("");
  if (after == before && !after.empty()) return " in '" + after + "'";
  std::string text;
  if (!after.empty()) text += " after '" + after + "'";
  if (!before.empty()) text += (text.empty() ? " before '" : " and before '") + before + "'";
  const std::string module = only_module_between(subject, after, before);
  if (!module.empty()) text += (text.empty() ? " perhaps in " : ", perhaps in ") + module;
  return text;
}

}  // namespace ulp::graph
