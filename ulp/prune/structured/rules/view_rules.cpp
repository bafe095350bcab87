// What splits and merges dimensions without moving numbers in memory, and what moves channels into space.
#include <algorithm>

#include "ulp/graph/passes/pattern.h"
#include "ulp/prune/structured/rules/rules.h"

namespace ulp::prune {

namespace {

using graph::Argument;
using Wide = __int128;

/// Sizes at which symbolic sizes are told apart. They have many divisors, so that halves of them are whole.
std::vector<int64_t> sample_sizes(const graph::Graph& graph) {
  std::vector<int64_t> sizes{5040 * 11};
  constexpr int64_t kPrimes[] = {13, 17, 19};
  for (size_t i = 0; i < graph.free.size(); ++i) sizes.push_back(5040 * kPrimes[i % 3]);
  return sizes;
}

/// A dimension of one side of a view, larger than 1.
struct Side {
  size_t dim;
  Wide size;
  Extent extent;
};

std::vector<Side> sides(Visit& visit, const graph::Value* value) {
  const std::vector<int64_t> sample = sample_sizes(visit.graph());
  std::vector<Side> found;
  const std::vector<graph::SizeExpr>& sizes = visit.meta(value).sizes;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t size = sizes[d].at(sample);
    if (size != 1) found.push_back({d, size, extent_of(sizes[d])});
  }
  return found;
}

/// The factors that both sides are made of, or nothing where they do not divide each other: of 3 x 8 and 6 x 4 they are
/// 3, 2, 4.
std::optional<std::vector<int64_t>> common_factors(const std::vector<int64_t>& a,
                                                   const std::vector<int64_t>& b) {
  std::vector<int64_t> factors;
  size_t i = 0, j = 0;
  int64_t left_a = 1, left_b = 1;
  while (i < a.size() || j < b.size() || left_a > 1 || left_b > 1) {
    if (left_a == 1 && i < a.size()) left_a = a[i++];
    if (left_b == 1 && j < b.size()) left_b = b[j++];
    const int64_t factor = std::min(left_a, left_b);
    if (factor < 1 || left_a % factor != 0 || left_b % factor != 0) return std::nullopt;
    if (factor == 1 && (left_a > 1 || left_b > 1)) {
      // One side has a dimension of 1 in hand: take the next one of that side.
      const bool more = left_a == 1 ? i < a.size() : j < b.size();
      if (!more) return std::nullopt;
      continue;
    }
    if (factor > 1) factors.push_back(factor);
    left_a /= factor;
    left_b /= factor;
  }
  return factors;
}

/// Splits an axis' list of factors off the front until their product is `size`.
std::vector<Axis> take_factors(const std::vector<Axis>& all, size_t& next, int64_t size) {
  std::vector<Axis> taken;
  while (size > 1) {
    taken.push_back(all.at(next));
    size /= static_cast<int64_t>(all[next++].size());
  }
  return taken;
}

/// Dimensions of the input and of the result that hold the same numbers in the same order.
struct Segment {
  std::vector<Side> from, to;
};

std::vector<Segment> segments(Visit& visit, const graph::Value* input, const graph::Value* output) {
  const std::vector<Side> from = sides(visit, input), to = sides(visit, output);
  std::vector<Segment> found;
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    Segment segment;
    Wide a = 1, b = 1;
    do {
      const bool take_from = a <= b;
      if (take_from ? i >= from.size() : j >= to.size()) visit.refuse("its sizes do not fit");
      if (take_from) {
        a *= from[i].size;
        segment.from.push_back(from[i++]);
      } else {
        b *= to[j].size;
        segment.to.push_back(to[j++]);
      }
    } while (a != b);
    found.push_back(std::move(segment));
  }
  return found;
}

/// Only the first dimension of a side may follow the batch, and those of both sides in the same way.
bool is_plain(const Segment& segment) {
  for (const std::vector<Side>* side : {&segment.from, &segment.to}) {
    for (size_t i = 0; i < side->size(); ++i) {
      const Extent& extent = (*side)[i].extent;
      if (extent.opaque || (i > 0 && !extent.powers.empty())) return false;
    }
  }
  return segment.from[0].extent.powers == segment.to[0].extent.powers;
}

std::vector<int64_t> counts(const std::vector<Side>& side) {
  std::vector<int64_t> found;
  for (const Side& dim : side) found.push_back(dim.extent.count);
  return found;
}

void relate(Visit& visit, const Segment& segment, const Layout& x, Layout& result) {
  bool zero = true;
  for (const Side& side : segment.from) zero = zero && (side.extent.count == 1 || x.zero[side.dim]);
  if (segment.from.size() == 1 && segment.to.size() == 1) {
    result.dims[segment.to[0].dim] = x.dims[segment.from[0].dim];
    result.zero[segment.to[0].dim] = zero;
    return;
  }
  const std::optional<std::vector<int64_t>> sizes =
      is_plain(segment) ? common_factors(counts(segment.from), counts(segment.to)) : std::nullopt;
  if (!sizes) {
    for (const Side& side : segment.from) visit.fix(x.dims[side.dim], "it mixes them with other dimensions");
    for (const Side& side : segment.to)
      visit.fix(result.dims[side.dim], "it mixes them with other dimensions");
    return;
  }
  std::vector<Axis> factors;
  for (const int64_t size : *sizes) factors.push_back(visit.axes().make(size));
  const std::string reason = visit.reason("they are cut along another dimension");
  size_t next = 0;
  for (const Side& side : segment.from)
    visit.axes().product(x.dims[side.dim], take_factors(factors, next, side.extent.count),
                         Preference::outermost, reason);
  next = 0;
  for (const Side& side : segment.to) {
    visit.axes().product(result.dims[side.dim], take_factors(factors, next, side.extent.count),
                         Preference::outermost, reason);
    result.zero[side.dim] = zero;
  }
}

Layout reshaped(Visit& visit) {
  const Argument& input = visit.node.args.at(0);
  const Layout x = visit.in(input);
  Layout result = visit.like_meta(visit.node.output());
  for (const Segment& segment : segments(visit, input.value, visit.node.output()))
    relate(visit, segment, x, result);
  return result;
}

/// The sizes follow from the input.
void merge(Visit& visit) {
  visit.out(reshaped(visit));
}

void view(Visit& visit) {
  Layout result = reshaped(visit);
  rewrite_sizes(visit, visit.node.is("aten::reshape") ? "shape" : "size", result.dims);
  visit.out(std::move(result));
}

void view_as(Visit& visit) {
  Layout result = reshaped(visit);
  const Layout& other = visit.in("other");
  for (size_t d = 0; d < result.dims.size(); ++d) visit.unite(result.dims[d], other.dims.at(d));
  visit.out(std::move(result));
}

void unflatten(Visit& visit) {
  const Layout x = visit.in("self");
  const size_t dim = visit.dim("dim", x);
  Layout result = reshaped(visit);
  const size_t count = result.dims.size() - x.dims.size() + 1;
  rewrite_sizes(visit, "sizes", {result.dims.begin() + dim, result.dims.begin() + dim + count});
  visit.out(std::move(result));
}

/// Without dimensions, or of one that is larger than 1, it would take what a cut makes 1.
void squeeze(Visit& visit) {
  const Layout& x = visit.in("self");
  const std::vector<graph::SizeExpr>& sizes = visit.meta(visit.node.args[0].value).sizes;
  std::vector<char> named(x.dims.size(), visit.node.args.size() == 1);
  if (visit.node.args.size() > 1) {
    for (const int64_t dim : visit.integers("dim")) named.at(x.dim(dim)) = true;
  }
  for (size_t d = 0; d < x.dims.size(); ++d) {
    const bool single = sizes[d].constant() && sizes[d].offset == 1;
    if (named[d] && !single) visit.fix(x.dims[d], "it drops dimensions of 1");
  }
  merge(visit);
}

/// c r^2 channels become c channels of r x r as many places.
void pixel_shuffle(Visit& visit) {
  const Layout x = visit.in("self");
  Layout result = visit.like_meta(visit.node.output());
  const size_t channel = x.dim(-3), block = x.dims[channel].size() / result.dims[channel].size();
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (d < channel) result.dims[d] = x.dims[d];
    if (d <= channel) continue;
    visit.fix(x.dims[d], "they are places");
    visit.fix(result.dims[d], "they are places");
  }
  for (size_t i = 0; i < x.dims[channel].size(); ++i)
    visit.axes().unite(x.dims[channel][i], result.dims[channel].at(i / block));
  result.zero[channel] = x.zero[channel];
  visit.out(std::move(result));
}

void pixel_unshuffle(Visit& visit) {
  const Layout x = visit.in("self");
  Layout result = visit.like_meta(visit.node.output());
  const size_t channel = x.dim(-3), block = result.dims[channel].size() / x.dims[channel].size();
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (d < channel) result.dims[d] = x.dims[d];
    if (d <= channel) continue;
    visit.fix(x.dims[d], "they are places");
    visit.fix(result.dims[d], "they are places");
  }
  for (size_t i = 0; i < result.dims[channel].size(); ++i)
    visit.axes().unite(result.dims[channel][i], x.dims[channel].at(i / block));
  result.zero[channel] = x.zero[channel];
  visit.out(std::move(result));
}

/// Channel a * B + b of A groups goes to b * A + a.
void channel_shuffle(Visit& visit) {
  Layout result = visit.in(visit.node.args.at(0));
  const Axis whole = result.dims.at(1);
  const int64_t groups = visit.integer("groups");
  const Axis outer = visit.axes().make(groups),
             inner = visit.axes().make(static_cast<int64_t>(whole.size()) / groups);
  const std::string reason = visit.reason("its groups are cut otherwise");
  visit.axes().product(whole, {outer, inner}, Preference::largest, reason);
  result.dims[1] = visit.axes().make(static_cast<int64_t>(whole.size()));
  visit.axes().product(result.dims[1], {inner, outer}, Preference::largest, reason);
  visit.rewrite([outer](graph::Graph&, graph::Node& node, const Survivors& left) {
    set_integer(node.arg("groups"), left.count(outer));
  });
  visit.out(std::move(result));
}

constexpr Rule kViewRules[] = {{"aten::flatten", merge},
                               {"aten::unsqueeze", merge},
                               {"aten::squeeze", squeeze},
                               {"aten::view", view},
                               {"aten::_unsafe_view", view},
                               {"aten::reshape", view},
                               {"aten::view_as", view_as},
                               {"aten::reshape_as", view_as},
                               {"aten::unflatten", unflatten},
                               {"aten::pixel_shuffle", pixel_shuffle},
                               {"aten::pixel_unshuffle", pixel_unshuffle},
                               {"aten::channel_shuffle", channel_shuffle}};

}  // namespace

std::span<const Rule> view_rules() {
  return kViewRules;
}

}  // namespace ulp::prune
