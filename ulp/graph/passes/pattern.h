// Small questions that passes ask about nodes and their arguments.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ulp/graph/describe.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

/// Whether the node is a call of one of these ops, each named with or without its overload.
bool is_any(const Node& node, std::span<const std::string_view> ops);
bool is_any(const Node& node, std::initializer_list<std::string_view> ops);

/// The op that gives zeros with the arguments of one that gives memory which nobody has written
/// ("aten::zeros_like" for "aten::empty_like"); null for all other targets. "aten::empty.memory_format" has
/// one argument more, its last.
const char* zeros_in_place_of(std::string_view target);

/// The only reader of the node's only output, or null. A value that is returned counts as read by the output.
Node* sole_user(const Graph& graph, const Node& node);

/// The only call that reads the value, if it reads it once; null for a result of the model, too.
Node* only_reader(const Graph& graph, const Value* value);

/// Who reads the value besides `expected`, for "conv1's output is also used by add_3".
std::string other_users(const Graph& graph, const Value* value, const Node& expected);

/// The call of this op that produced the argument, or null.
Node* producer(const Argument& arg, std::string_view op);

/// Number of dimensions seen at capture, or -1.
int64_t rank(const Argument& arg);

std::optional<int64_t> integer(const Argument& arg);
std::optional<std::vector<int64_t>> integers(const Argument& arg);
/// A number, whole or not.
std::optional<double> number(const Argument& arg);

/// `value` in place of an optional int list of one entry for each of n dimensions; a single entry is
/// repeated.
std::vector<int64_t> spread(std::vector<int64_t> list, size_t n);

}  // namespace ulp::graph
