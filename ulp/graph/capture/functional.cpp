#include "ulp/graph/capture/functional.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

#include "ulp/base/error.h"

namespace ulp::graph {

namespace {

/// The names of all arguments but the first: what `dropout_` calls "self" is the "input" of `dropout`.
bool same_arguments(const c10::FunctionSchema& a, const c10::FunctionSchema& b) {
  return std::ranges::equal(a.arguments(), b.arguments(),
                            [&](const c10::Argument& x, const c10::Argument& y) {
                              return x.name() == y.name() || &x == &a.arguments()[0];
                            });
}

}  // namespace

std::string functional_target(const TracedCall& call) {
  size_t dot = call.target.find('.');
  std::string name = call.target.substr(0, dot);
  std::string overload = dot == std::string::npos ? "" : call.target.substr(dot + 1);
  if (name.ends_with('_') && name != "aten::resize_" && name != "aten::set_") {
    name.pop_back();
    const std::pair<std::string, std::string> candidates[] = {
        {name, overload}, {name + "_functional", overload}, {name, "p"}};
    for (const auto& [base, variant] : candidates) {
      auto found = c10::Dispatcher::singleton().findSchema({base, variant});
      if (found && !found->schema().is_mutable() && same_arguments(found->schema(), *call.schema)) {
        return variant.empty() ? base : base + "." + variant;
      }
    }
  }
  fail({.code = ErrorCode::unsupported_op, .places = {{.op = call.target}}}, "graph.capture", call.target,
       " writes into its argument and has no out-of-place form");
}

}  // namespace ulp::graph
