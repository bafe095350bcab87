#include "ulp/exchange/onnx_import/kept_name.h"

#include <algorithm>

namespace ulp::exchange::onnx_import {

namespace {

bool same_attribute(const FileAttribute& a, const FileAttribute& b) {
  return a.name == b.name && a.type == b.type && a.i == b.i && a.f == b.f && a.s == b.s && a.ints == b.ints &&
         a.floats == b.floats;
}

bool makes_the_same(const FileNode& a, const FileNode& b, size_t first) {
  const auto from = [&](const FileNode& node) {
    return node.inputs.begin() + static_cast<int64_t>(std::min(first, node.inputs.size()));
  };
  return a.op == b.op && a.domain == b.domain &&
         std::equal(from(a), a.inputs.end(), from(b), b.inputs.end()) &&
         std::ranges::equal(a.attributes, b.attributes, same_attribute);
}

}  // namespace

std::string kept_name(const Call& call, const FileNode& node, size_t i, const std::string& wish,
                      const std::string& ending, size_t first) {
  const std::string& input = node.inputs.at(i);
  const bool taken = wish != input && call.run().store().find(wish).defined();
  const bool alone = !call.analysis().is_result(input) &&
                     std::ranges::all_of(call.analysis().uses(input), [&](const Use& use) {
                       return use.input == i && makes_the_same(*use.node, node, first);
                     });
  return alone && !taken ? wish : node.outputs.at(0) + ending;
}

}  // namespace ulp::exchange::onnx_import
