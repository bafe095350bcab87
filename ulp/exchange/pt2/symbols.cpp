#include "ulp/exchange/pt2/symbols.h"

#include <algorithm>
#include <numeric>

namespace ulp::exchange::pt2 {

namespace {

using graph::Graph;
using graph::SizeExpr;

std::string integer_text(int64_t number) {
  return "Integer(" + std::to_string(number) + ")";
}

/// "Add(a, b)"; the only one where there is but one.
std::string applied(const char* function, const std::vector<std::string>& parts) {
  if (parts.size() == 1) return parts[0];
  std::string text = function + std::string("(");
  for (size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : ", ") + parts[i];
  return text + ")";
}

/// The size along which a recurrent layer steps; null for other calls.
const SizeExpr* unrolled_size(const graph::Node& node) {
  const bool recurrent =
      node.is("aten::lstm") || node.is("aten::gru") || node.is("aten::rnn_tanh") || node.is("aten::rnn_relu");
  if (!recurrent) return nullptr;
  const graph::Value* x = node.args.at(0).value;
  const graph::Argument& batch_first = node.args.back();
  const bool known = x != nullptr && x->meta && x->meta->sizes.size() > 1 && batch_first.literal.isBool();
  return known ? &x->meta->sizes[batch_first.literal.toBool() ? 1 : 0] : nullptr;
}

bool has_batch(const Graph& graph) {
  return std::ranges::any_of(graph.batch_dims, [](int64_t dim) { return dim >= 0; });
}

}  // namespace

Symbols::Symbols(const Graph& graph) : graph_(graph) {
  constexpr int64_t kSampleBatch = 4;
  sample_.push_back(graph.batch_range.nearest(kSampleBatch));
  for (const graph::DynamicDimension& free : graph.free)
    sample_.push_back(free.max / free.multiple * free.multiple);
  for (const auto& node : graph.nodes()) {
    const SizeExpr* size = unrolled_size(*node);
    if (size == nullptr) continue;
    for (const Polynomial::Term& term : size->rest.terms) {
      for (size_t i = 1; i < term.powers.size(); ++i) {
        if (term.powers[i] > 0) unrolled_.insert(i);
      }
    }
  }
}

std::string Symbols::symbol(size_t which) const {
  return "Symbol('s" + std::to_string(which) + "', positive=True, integer=True)";
}

std::string Symbols::text(const SizeExpr& size) const {
  // Every term over one denominator: each alone need not be whole.
  int64_t divisor = size.numerator == 0 ? 1 : size.denominator;
  for (const Polynomial::Term& term : size.rest.terms) divisor = std::lcm(divisor, term.denominator);
  struct Part {
    int64_t factor;
    std::vector<int32_t> powers;
  };
  std::vector<Part> parts;
  if (size.numerator != 0) parts.push_back({size.numerator * (divisor / size.denominator), {1}});
  for (const Polynomial::Term& term : size.rest.terms) {
    Part part{term.numerator * (divisor / term.denominator), term.powers};
    for (size_t i = 1; i < part.powers.size(); ++i) {
      for (int32_t power = 0; power < part.powers[i]; ++power) part.factor *= graph_.free[i - 1].multiple;
    }
    parts.push_back(part);
  }
  int64_t common = divisor;
  for (const Part& part : parts) common = std::gcd(common, part.factor);
  if (size.offset != 0) common = std::gcd(common, size.offset * divisor);
  divisor /= common;
  std::vector<std::string> terms;
  for (const Part& part : parts) {
    std::vector<std::string> factors;
    for (size_t i = 0; i < part.powers.size(); ++i) {
      if (part.powers[i] == 0) continue;
      factors.push_back(part.powers[i] == 1 ? symbol(i)
                                            : applied("Pow", {symbol(i), integer_text(part.powers[i])}));
    }
    if (part.factor != common || factors.empty())
      factors.insert(factors.begin(), integer_text(part.factor / common));
    terms.push_back(applied("Mul", factors));
  }
  if (size.offset != 0 || terms.empty()) terms.push_back(integer_text(size.offset * divisor));
  const std::string sum = applied("Add", terms);
  return divisor == 1 ? sum : applied("FloorDiv", {sum, integer_text(divisor)});
}

Json Symbols::expression(const std::string& text, int64_t sample) const {
  const bool hidden = std::ranges::any_of(
      unrolled_, [&](size_t which) { return text.find(symbol(which)) != std::string::npos; });
  const Json hint = hidden ? Json(nullptr) : Json{{"as_int", sample}};
  return {{"as_expr", {{"expr_str", text}, {"hint", hint}}}};
}

Json Symbols::number(const SizeExpr& size) const {
  if (size.constant()) return {{"as_int", size.offset}};
  return expression(text(size), sample(size));
}

Json Symbols::strides(const std::vector<SizeExpr>& sizes, const std::vector<size_t>& order) const {
  std::vector<Json> strides(sizes.size());
  int64_t number = 1, sampled = 1;
  std::vector<std::string> factors;
  for (size_t i = order.size(); i-- > 0;) {
    std::vector<std::string> all = factors;
    if (number != 1 || all.empty()) all.insert(all.begin(), integer_text(number));
    strides[order[i]] = factors.empty() ? Json{{"as_int", number}} : expression(applied("Mul", all), sampled);
    const SizeExpr& size = sizes[order[i]];
    // A dimension of size 0 counts as 1 in strides.
    sampled *= std::max<int64_t>(sample(size), 1);
    if (size.constant()) {
      number *= std::max<int64_t>(size.offset, 1);
    } else {
      factors.push_back(text(size));
    }
  }
  return strides;
}

Json Symbols::ranges() const {
  Json ranges = Json::object();
  if (has_batch(graph_)) {
    const BatchRange& range = graph_.batch_range;
    ranges["s0"] = {{"min_val", std::max<int64_t>(range.min, 1)},
                    {"max_val", range.max == BatchRange::kAny ? Json(nullptr) : Json(range.max)}};
  }
  for (size_t i = 0; i < graph_.free.size(); ++i) {
    const graph::DynamicDimension& free = graph_.free[i];
    const int64_t low = (free.min + free.multiple - 1) / free.multiple, high = free.max / free.multiple;
    const std::string name = "s" + std::to_string(i + 1);
    ranges[name] = {{"min_val", low}, {"max_val", high}};
    if (free.multiple > 1)
      ranges[std::to_string(free.multiple) + "*" + name] = {{"min_val", low * free.multiple},
                                                            {"max_val", high * free.multiple}};
  }
  return ranges;
}

Json Symbols::guards(const std::vector<std::string>& inputs) const {
  Json guards = Json::array();
  for (const graph::DynamicDimension& free : graph_.free) {
    if (free.multiple == 1) continue;
    for (const graph::DynamicDimension::InputDimension& place : free.places)
      guards.push_back("L['" + inputs.at(place.input) + "'].size()[" + std::to_string(place.dim) + "] % " +
                       std::to_string(free.multiple) + " == 0");
  }
  return guards;
}

}  // namespace ulp::exchange::pt2
