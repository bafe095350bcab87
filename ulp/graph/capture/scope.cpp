#include "ulp/graph/capture/scope.h"

#include <algorithm>

#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

namespace {

/// The longest path of whole components that both start with.
std::string common(const std::string& a, const std::string& b) {
  size_t end = 0;
  for (size_t i = 0; i <= std::min(a.size(), b.size()); ++i) {
    bool a_ends = i == a.size() || a[i] == '.', b_ends = i == b.size() || b[i] == '.';
    if (a_ends && b_ends) end = i;
    if (i == a.size() || i == b.size() || a[i] != b[i]) break;
  }
  return a.substr(0, end);
}

bool owns_parameters(const Node& node) {
  std::vector<Value*> reads = node.reads();
  return std::any_of(reads.begin(), reads.end(), [](Value* v) { return from_attributes(*v->producer); });
}

}  // namespace

std::string parent_path(const std::string& path) {
  size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string common_path(const std::vector<std::string>& paths) {
  if (paths.empty()) return "";
  std::string all = paths[0];
  for (const std::string& path : paths) all = common(all, path);
  return all;
}

void set_scope(Node& node) {
  std::vector<std::string> owners, around;
  for (Value* value : node.reads()) {
    const Node& producer = *value->producer;
    if (producer.kind() == Node::Kind::attribute) {
      owners.push_back(parent_path(producer.target()));
    } else if (from_attributes(producer)) {
      owners.push_back(producer.scope);
    } else if (producer.kind() == Node::Kind::call) {
      around.push_back(owns_parameters(producer) ? parent_path(producer.scope) : producer.scope);
    }
  }
  const std::vector<std::string>& paths = owners.empty() ? around : owners;
  if (!paths.empty()) node.scope = common_path(paths);
}

}  // namespace ulp::graph
