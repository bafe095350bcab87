#include <algorithm>
#include <cmath>

#include "ulp/graph/passes/pattern.h"
#include "ulp/prune/structured/rules/rules.h"

namespace ulp::prune {

namespace {

using graph::Argument;

/// Heads of the queries follow those of keys and values, which may be fewer: query head h n + j reads head h.
void join_heads(Visit& visit, const Axis& queries, const Axis& keys) {
  if (keys.size() == 1 || queries.size() == 1) return;
  if (queries.size() % keys.size() != 0) visit.refuse("its heads do not divide each other");
  const size_t each = queries.size() / keys.size();
  for (size_t i = 0; i < queries.size(); ++i) visit.axes().unite(queries[i], keys[i / each]);
}

/// (..., heads, queries, size) with (..., heads, keys, size): heads are independent of each other.
void attention(Visit& visit) {
  const Layout q = visit.in("query"), k = visit.in("key"), v = visit.in("value");
  if (q.rank() != k.rank() || q.rank() != v.rank() || q.rank() < 2)
    visit.refuse("query, key and value have different dimensions");
  const bool grouped =
      visit.node.arg("enable_gqa").literal.isBool() && visit.node.arg("enable_gqa").literal.toBool();
  const size_t size = q.dim(-1), length = q.dim(-2);
  Layout result = q;
  for (size_t d = 0; d < length; ++d) {
    if (!grouped && k.dims[d].size() != q.dims[d].size() && k.dims[d].size() != 1 && q.dims[d].size() != 1)
      visit.refuse("its heads do not fit");
    join_heads(visit, q.dims[d], k.dims[d]);
    join_heads(visit, q.dims[d], v.dims[d]);
    if (q.dims[d].size() == 1 && v.dims[d].size() > 1) result.dims[d] = v.dims[d];
    result.zero[d] = v.zero[d];
  }
  for (const Layout* operand : {&q, &k, &v}) visit.fix(operand->dims[length], "they are places of a text");
  visit.contract(q, size, k, size);
  visit.sum(q.dims[size]);
  result.dims[size] = v.dims[size];
  result.zero[size] = v.zero[size];
  result.zero[length] = false;
  if (visit.has("attn_mask")) {
    const Layout mask = visit.in("attn_mask");
    for (int64_t d = 1; d <= mask.rank(); ++d) {
      const Axis& axis = mask.dims[mask.dim(-d)];
      if (d <= 2) visit.fix(axis, "they are places of a text");
      if (d > 2 && axis.size() > 1) visit.unite(axis, result.dims[result.dim(-d)]);
    }
  }
  const Axis numbers = q.dims[size];
  visit.rewrite([numbers](graph::Graph&, graph::Node& node, const Survivors& left) {
    // Unless it is said, the scale follows the size of a head.
    if (!left.whole(numbers) && node.arg("scale").is_none())
      node.arg("scale") = Argument(c10::IValue(1 / std::sqrt(static_cast<double>(numbers.size()))));
  });
  visit.out(std::move(result));
}

/// Rows of all gates of a unit, which lie gate by gate.
void join_gates(Visit& visit, const Axis& rows, const Axis& units) {
  if (units.empty() || rows.size() % units.size() != 0) visit.refuse("its weights are of an unknown form");
  for (size_t i = 0; i < rows.size(); ++i) visit.axes().unite(rows[i], units[i % units.size()]);
  visit.mark(rows, Role::row);
}

/// w_ih, w_hh and the biases of one direction of one layer.
void join_cell(Visit& visit, std::span<const Argument> weights, const Axis& input, const Axis& units) {
  for (const Argument& weight : weights) join_gates(visit, visit.in(weight).dims.at(0), units);
  const Axis& columns = visit.in(weights[0]).dims.at(1);
  visit.mark(columns, Role::column);
  visit.unite(columns, input);
  visit.sum(columns, {&weights[0]});
  const Axis& recurrent = visit.in(weights[1]).dims.at(1);
  visit.mark(recurrent, Role::column);
  visit.unite(recurrent, units);
  visit.sum(recurrent, {&weights[1]});
}

bool flag(const Visit& visit, std::string_view name) {
  const Argument& arg = visit.node.arg(name);
  return arg.literal.isBool() && arg.literal.toBool();
}

/// LSTM, GRU and plain recurrent layers over whole sequences. The states of all layers and directions are one tensor: a unit is
/// the same one of each of them.
void recurrent(Visit& visit) {
  if (!visit.node.target().ends_with(".input")) visit.refuse("its sequences are packed");
  const Layout x = visit.in("input");
  const Argument& hx = visit.node.arg("hx");
  const std::vector<Argument> states = hx.is_value() ? std::vector<Argument>{hx} : hx.items;
  const std::vector<Argument>& weights = visit.node.arg("params").items;
  const int64_t layers = visit.integer("num_layers"), directions = flag(visit, "bidirectional") ? 2 : 1;
  const size_t each = flag(visit, "has_biases") ? 4 : 2;
  if (x.rank() != 3) visit.refuse("its input has no batch");
  if (weights.size() != each * static_cast<size_t>(layers * directions)) visit.refuse("it has projections");
  const Axis units = visit.in(states.at(0)).dims.at(2);
  for (const Argument& state : states) visit.unite(visit.in(state).dims.at(2), units);
  Axis both = units;
  if (directions == 2) both.insert(both.end(), units.begin(), units.end());
  for (int64_t i = 0; i < layers * directions; ++i) {
    join_cell(visit, std::span(weights).subspan(static_cast<size_t>(i) * each, each),
              i < directions ? x.dims[2] : both, units);
  }
  bool zero = true;
  for (const Argument& state : states) zero = zero && visit.in(state).zero[2];
  Layout result = x;
  result.zero = {false, false, zero};
  visit.fix(x.dims[0], "they are steps in time");
  visit.fix(x.dims[1], "they are steps in time");
  result.dims[2] = both;
  visit.out(result, 0);
  for (size_t i = 1; i < visit.node.outputs().size(); ++i) {
    Layout state = visit.in(states.at(i - 1));
    state.zero = {false, false, zero};
    visit.fix(state.dims[0], "they are layers");
    visit.out(std::move(state), i);
  }
}

/// One step of one layer.
void cell(Visit& visit) {
  const Argument& hx = visit.node.arg("hx");
  const std::vector<Argument> states = hx.is_value() ? std::vector<Argument>{hx} : hx.items;
  const Layout x = visit.in("input"), state = visit.in(states.at(0));
  if (x.rank() != 2) visit.refuse("its input has no batch");
  const Axis units = state.dims.at(1);
  for (const Argument& other : states) visit.unite(visit.in(other).dims.at(1), units);
  std::vector<Argument> weights{visit.node.arg("w_ih"), visit.node.arg("w_hh")};
  for (const char* bias : {"b_ih", "b_hh"}) {
    if (visit.has(bias)) weights.push_back(visit.node.arg(bias));
  }
  join_cell(visit, weights, x.dims[1], units);
  bool zero = true;
  for (const Argument& other : states) zero = zero && visit.in(other).zero[1];
  for (size_t i = 0; i < visit.node.outputs().size(); ++i) {
    Layout result = state;
    result.zero = {false, zero};
    visit.out(std::move(result), i);
  }
}

constexpr Rule kSequenceRules[] = {{"aten::scaled_dot_product_attention", attention},
                                   {"aten::lstm", recurrent},
                                   {"aten::gru", recurrent},
                                   {"aten::rnn_tanh", recurrent},
                                   {"aten::rnn_relu", recurrent},
                                   {"aten::lstm_cell", cell},
                                   {"aten::gru_cell", cell},
                                   {"aten::rnn_tanh_cell", cell},
                                   {"aten::rnn_relu_cell", cell}};

}  // namespace

std::span<const Rule> sequence_rules() {
  return kSequenceRules;
}

}  // namespace ulp::prune
