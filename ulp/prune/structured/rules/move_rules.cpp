#include <algorithm>
#include <limits>

#include "ulp/graph/passes/pattern.h"
#include "ulp/prune/structured/rules/rules.h"

namespace ulp::prune {

namespace {

using graph::Argument;

void permute_to(Visit& visit, const std::vector<int64_t>& order) {
  const Layout x = visit.in(visit.node.args.at(0));
  Layout result;
  for (const int64_t d : order) result.add(x.dims.at(x.dim(d)), x.zero.at(x.dim(d)));
  visit.out(std::move(result));
}

void permute(Visit& visit) {
  permute_to(visit, visit.integers("dims"));
}

void transpose(Visit& visit) {
  const Layout x = visit.in("self");
  std::vector<int64_t> order(x.dims.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(d);
  const bool plain = visit.node.is("aten::t");
  if (order.size() > 1)
    std::swap(order[plain ? 0 : visit.dim("dim0", x)], order[plain ? 1 : visit.dim("dim1", x)]);
  permute_to(visit, order);
}

void flip(Visit& visit) {
  Layout result = visit.in("self");
  for (const int64_t dim : visit.integers("dims")) {
    Axis& axis = result.dims.at(result.dim(dim));
    std::ranges::reverse(axis);
  }
  visit.out(std::move(result));
}

/// The distance would be another one.
void roll(Visit& visit) {
  Layout result = visit.in("self");
  const std::vector<int64_t> dims = visit.integers("dims");
  if (dims.empty()) visit.refuse("it rolls over all dimensions");
  for (const int64_t dim : dims) visit.fix(result.dims.at(result.dim(dim)), "it rolls them");
  visit.out(std::move(result));
}

/// Sizes of 1 are repeated: the new positions are the op's own.
void expand(Visit& visit) {
  const Layout x = visit.in("self");
  Layout result = visit.like_meta(visit.node.output());
  const int64_t fresh = result.rank() - x.rank();
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (x.dims[d].size() == 1 && result.dims[d + fresh].size() > 1) continue;
    visit.unite(x.dims[d], result.dims[d + fresh]);
    result.zero[d + fresh] = x.zero[d];
  }
  if (visit.node.is("aten::expand")) {
    rewrite_sizes(visit, "size", result.dims);
  } else {
    const Layout& other = visit.in("other");
    for (int64_t d = 0; d < result.rank(); ++d) visit.unite(result.dims[d], other.dims.at(d));
  }
  visit.out(std::move(result));
}

/// Copies of a dimension follow each other: they are cut alike.
void repeat(Visit& visit) {
  const Layout x = visit.in("self");
  Layout result = visit.like_meta(visit.node.output());
  const int64_t fresh = result.rank() - x.rank();
  std::vector<Axis> made;  // those of which the count is the number of repeats
  for (int64_t d = 0; d < result.rank(); ++d) {
    Axis& axis = result.dims[d];
    const bool own = d < fresh || x.dims[d - fresh].size() == 1;
    made.push_back(own ? axis : Axis{});
    const Extent extent = extent_of(visit.meta(visit.node.output()).sizes[d]);
    if (!extent.powers.empty() || extent.opaque) visit.fix(axis, "it repeats what follows the batch");
    if (own) continue;
    const Axis& from = x.dims[d - fresh];
    for (size_t i = 0; i < axis.size(); ++i) visit.axes().unite(axis[i], from[i % from.size()]);
    result.zero[d] = x.zero[d - fresh];
  }
  visit.rewrite([made](graph::Graph&, graph::Node& node, const Survivors& left) {
    Argument& arg = node.arg("repeats");
    const bool list = arg.kind == Argument::Kind::list;
    std::vector<int64_t> plain = list ? std::vector<int64_t>() : graph::integers(arg).value();
    for (size_t i = 0; i < made.size(); ++i) {
      if (left.whole(made[i])) continue;
      if (list) {
        set_integer(arg.items[i], left.count(made[i]));
      } else {
        plain[i] = left.count(made[i]);
      }
    }
    if (!list) arg.literal = plain;
  });
  visit.out(std::move(result));
}

/// Every position as often as said, beside each other: query heads of a key-value head.
void repeat_interleave(Visit& visit) {
  Layout result = visit.in("self");
  if (!visit.node.target().ends_with("self_int")) visit.refuse("it repeats by a tensor");
  const size_t dim = visit.dim("dim", result);
  const auto times = static_cast<size_t>(visit.integer("repeats"));
  Axis repeated;
  for (const Position position : result.dims[dim]) repeated.insert(repeated.end(), times, position);
  result.dims[dim] = repeated;
  if (!visit.node.arg("output_size").is_none()) {
    visit.rewrite([repeated](graph::Graph&, graph::Node& node, const Survivors& left) {
      if (!left.whole(repeated)) set_integer(node.arg("output_size"), left.count(repeated));
    });
  }
  visit.out(std::move(result));
}

/// Rows are found by number; what is behind the index stays as it is. One index, behind dimensions taken whole.
void index(Visit& visit) {
  const Layout x = visit.in("self");
  const std::vector<Argument>& indices = visit.node.arg("indices").items;
  Layout result;
  size_t d = 0;
  while (d < indices.size() && indices[d].is_none()) {
    result.add(x.dims.at(d), x.zero[d]);
    ++d;
  }
  if (d + 1 != indices.size()) visit.refuse("it has several indices");
  const Layout ids = visit.in(indices[d]);
  visit.fix(x.dims.at(d), "they are found by number");
  for (const Axis& axis : ids.dims) {
    visit.fix(axis);
    result.add(axis, false);
  }
  for (++d; d < x.dims.size(); ++d) result.add(x.dims[d], x.zero[d]);
  visit.out(std::move(result));
}

void index_select(Visit& visit) {
  Layout result = visit.in("self");
  const size_t dim = visit.dim("dim", result);
  visit.fix(result.dims[dim], "they are found by number");
  const Layout ids = visit.in("index");
  result.dims[dim] = visit.fixed(ids.dims.empty() ? 1 : ids.dims[0].size());
  result.zero[dim] = false;
  visit.out(std::move(result));
}

/// Along one dimension elements are found by number; along the others an index belongs to each element.
void gather(Visit& visit) {
  const Layout x = visit.in("self"), ids = visit.in("index");
  const size_t dim = visit.dim("dim", x);
  if (x.rank() != ids.rank()) visit.refuse("its index has other dimensions");
  Layout result = ids;
  visit.fix(x.dims[dim], "they are found by number");
  visit.fix(ids.dims[dim], "they are found by number");
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (d == dim) continue;
    visit.unite(x.dims[d], ids.dims[d]);  // refuses a part
    result.zero[d] = x.zero[d];
  }
  result.zero[dim] = false;
  visit.out(std::move(result));
}

/// The same number everywhere, or one drawn for each place: as many as there are.
void fill(Visit& visit) {
  Layout result;
  const Argument& sizes = visit.node.arg("size");
  if (visit.node.output()->meta) {
    result = visit.like_meta(visit.node.output());
  } else if (sizes.kind == Argument::Kind::list) {
    for (const Argument& item : sizes.items) {
      const int64_t count =
          item.kind == Argument::Kind::batch ? extent_of(item.batch).count : graph::integer(item).value_or(1);
      result.add(count == 1 ? visit.fixed(1) : visit.axes().make(count), false);
    }
  } else {
    for (const int64_t count : visit.integers("size"))
      result.add(count == 1 ? visit.fixed(1) : visit.axes().make(count), false);
  }
  if (visit.node.is("aten::zeros") || visit.node.is("aten::new_zeros"))
    result.zero.assign(result.dims.size(), true);
  rewrite_sizes(visit, "size", result.dims);
  visit.out(std::move(result));
}

constexpr Rule kMoveRules[] = {{"aten::permute", permute},
                               {"aten::transpose", transpose},
                               {"aten::t", transpose},
                               {"aten::flip", flip},
                               {"aten::roll", roll},
                               {"aten::expand", expand},
                               {"aten::expand_as", expand},
                               {"aten::repeat", repeat},
                               {"aten::repeat_interleave", repeat_interleave},
                               {"aten::index", index},
                               {"aten::index_select", index_select},
                               {"aten::gather", gather},
                               {"aten::zeros", fill},
                               {"aten::ones", fill},
                               {"aten::new_zeros", fill},
                               {"aten::new_ones", fill},
                               {"aten::new_full", fill},
                               {"aten::new_empty", fill},
                               {"aten::full", fill},
                               {"aten::empty", fill},
                               {"aten::rand", fill},
                               {"aten::randn", fill}};

}  // namespace

std::span<const Rule> move_rules() {
  return kMoveRules;
}

}  // namespace ulp::prune
