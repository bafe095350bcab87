#include "ulp/exchange/pt2/result_tree.h"

#include "ulp/exchange/calls.h"
#include "ulp/exchange/pt2/program.h"

namespace ulp::exchange::pt2 {

namespace {

using graph::Argument;

Json tree(const Json& type, const Json& context, Json children) {
  return {{"type", type}, {"context", context}, {"children_spec", std::move(children)}};
}

Json leaf() {
  return tree(nullptr, nullptr, Json::array());
}

std::string tree_text(Json tree) {
  constexpr int kTreeVersion = 1;
  return Json::array({kTreeVersion, std::move(tree)}).dump();
}

/// A word and a value.
bool is_named(const Argument& argument) {
  const bool many = argument.kind == Argument::Kind::tuple || argument.kind == Argument::Kind::list;
  return many && argument.items.size() == 2 && argument.items[0].kind == Argument::Kind::literal &&
         argument.items[0].literal.isString();
}

Json tree_of(const Argument& argument) {
  const bool list = argument.kind == Argument::Kind::list;
  if (!list && argument.kind != Argument::Kind::tuple) return leaf();
  Json children = Json::array(), names = Json::array();
  for (const Argument& item : argument.items) {
    if (!has_tensor(item)) continue;
    if (is_named(item)) names.push_back(item.items[0].literal.toStringRef());
    children.push_back(tree_of(is_named(item) ? item.items[1] : item));
  }
  if (!names.empty() && names.size() == children.size())
    return tree("builtins.dict", names.dump(), std::move(children));
  return tree(list ? "builtins.list" : "builtins.tuple", "null", std::move(children));
}

}  // namespace

std::string inputs_tree(size_t count) {
  Json inputs = Json::array();
  for (size_t i = 0; i < count; ++i) inputs.push_back(leaf());
  Json by_place = tree("builtins.tuple", "null", std::move(inputs));
  Json by_name = tree("builtins.dict", "[]", Json::array());
  return tree_text(tree("builtins.tuple", "null", Json::array({std::move(by_place), std::move(by_name)})));
}

std::string result_tree(const Argument& result) {
  return tree_text(tree_of(result));
}

}  // namespace ulp::exchange::pt2
