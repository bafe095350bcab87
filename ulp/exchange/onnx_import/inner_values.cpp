// Names of values in branches: both branches of an If may use the same.
#include <map>
#include <set>

#include "ulp/exchange/onnx_import/rewrite.h"

namespace ulp::exchange::onnx_import {

namespace {

class InnerNamer {
 public:
  explicit InnerNamer(FileGraph& graph) : graph_(graph) { gather(graph); }

  void run() {
    for (FileNode& node : graph_.nodes) visit_branches(node, {});
  }

 private:
  using Names = std::map<std::string, std::string>;

  void gather(const FileGraph& graph) {
    for (const FileTensor& one : graph.initializers) taken_.insert(one.name);
    for (const FileValue& one : graph.inputs) taken_.insert(one.name);
    for (const FileNode& node : graph.nodes) taken_.insert(node.outputs.begin(), node.outputs.end());
  }

  void visit_branches(FileNode& node, const Names& outer) {
    for (FileAttribute& attribute : node.attributes) {
      if (attribute.g) branch(*attribute.g, outer);
    }
  }

  void branch(FileGraph& graph, Names names) {
    for (FileTensor& one : graph.initializers) define(one.name, names);
    for (FileValue& one : graph.inputs) define(one.name, names);
    for (FileNode& node : graph.nodes) {
      for (std::string& input : node.inputs) read(input, names);
      visit_branches(node, names);
      for (std::string& output : node.outputs) {
        if (!output.empty()) define(output, names);
      }
    }
    for (FileValue& one : graph.outputs) read(one.name, names);
  }

  void define(std::string& name, Names& names) {
    std::string own = name;
    for (int i = 1; !taken_.insert(own).second; ++i) own = name + ".branch" + std::to_string(i);
    names[name] = own;
    name = own;
  }

  static void read(std::string& name, const Names& names) {
    if (const auto found = names.find(name); found != names.end()) name = found->second;
  }

  FileGraph& graph_;
  std::set<std::string> taken_;
};

}  // namespace

void name_inner_values(FileGraph& graph) {
  InnerNamer(graph).run();
}

}  // namespace ulp::exchange::onnx_import
