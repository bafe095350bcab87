#include "ulp/prune/structured/visit.h"

#include "ulp/graph/describe.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::prune {

using graph::Argument;

bool Visit::has(std::string_view name) const {
  return node.arg(name).is_value();
}

const Layout& Visit::in(const Argument& arg) const {
  if (!arg.is_value()) refuse("a tensor is missing");
  const Layout& layout = tracker_.layout(arg.value);
  if (!layout.known) refuse("the sizes of '" + arg.value->name + "' are not known");
  return layout;
}

std::optional<int64_t> Visit::integer_if(std::string_view name) const {
  return graph::integer(node.arg(name));
}

int64_t Visit::integer(std::string_view name) const {
  const std::optional<int64_t> found = integer_if(name);
  if (!found) refuse(std::string(name) + " is not a fixed number");
  return *found;
}

std::vector<int64_t> Visit::integers(std::string_view name) const {
  const std::optional<std::vector<int64_t>> found = graph::integers(node.arg(name));
  if (!found) refuse(std::string(name) + " is not a list of fixed numbers");
  return *found;
}

size_t Visit::dim(std::string_view name, const Layout& of) const {
  const size_t found = of.dim(integer(name));
  if (found >= of.dims.size()) refuse(std::string(name) + " is no dimension");
  return found;
}

const graph::TensorMeta& Visit::meta(const graph::Value* value) const {
  if (!value->meta) refuse("the sizes of '" + value->name + "' are not known");
  return *value->meta;
}

Layout Visit::like_meta(const graph::Value* value) {
  Layout layout;
  for (const graph::SizeExpr& size : meta(value).sizes) {
    const int64_t count = extent_of(size).count;
    layout.add(count == 1 ? fixed(1) : axes().make(count), false);
  }
  return layout;
}

void Visit::out(Layout layout, size_t index) {
  const graph::Value* value = node.output(index);
  if (value->meta) {
    if (layout.dims.size() != value->meta->sizes.size()) refuse("its result has other dimensions");
    for (size_t d = 0; d < layout.dims.size(); ++d) {
      const int64_t seen = extent_of(value->meta->sizes[d]).count;
      if (static_cast<int64_t>(layout.dims[d].size()) != seen)
        refuse("dimension " + std::to_string(d) + " of its result has " + std::to_string(seen) +
               " elements, not " + std::to_string(layout.dims[d].size()));
    }
  }
  tracker_.layouts_[value] = std::move(layout);
}

void Visit::inexact(const Axis& axis, const std::string& why) {
  if (axis.size() == 1) return;
  if (options().inexact) {
    axes().note(axis, graph::label(node) + ": " + why);
  } else {
    fix(axis, why);
  }
}

void Visit::unite(const Axis& a, const Axis& b) {
  if (a.size() != b.size())
    refuse("it joins " + std::to_string(a.size()) + " and " + std::to_string(b.size()) + " channels");
  axes().unite(a, b);
}

void Visit::contract(const Layout& a, size_t a_dim, const Layout& b, size_t b_dim) {
  unite(a.dims.at(a_dim), b.dims.at(b_dim));
  if (!a.zero[a_dim] && !b.zero[b_dim]) inexact(a.dims[a_dim], "it sums over them");
}

void Visit::sum(const Axis& axis, std::initializer_list<const Argument*> factors) {
  Sum made{axis, {}, node.target() + " '" + node.name() + "' sums over them"};
  for (const Argument* factor : factors) {
    if (factor->is_value()) made.factors.push_back(factor->value);
  }
  tracker_.sums_.push_back(std::move(made));
}

void Visit::mark(const Axis& axis, Role role) {
  for (const Position position : axis) tracker_.roles_.emplace(position, role);
}

std::string Visit::reason(const std::string& why) const {
  return node.target() + " '" + node.name() + "' keeps its channels" + (why.empty() ? "" : ": " + why);
}

void set_integer(Argument& arg, int64_t count) {
  if (arg.kind == Argument::Kind::batch) {
    arg.batch = with_count(arg.batch, count);
  } else {
    arg.literal = count;
  }
}

void rewrite_sizes(Visit& visit, std::string_view name, std::vector<Axis> axes) {
  visit.rewrite([name = std::string(name), axes = std::move(axes)](graph::Graph&, graph::Node& node,
                                                                   const Survivors& left) {
    Argument& arg = node.arg(name);
    if (arg.kind == Argument::Kind::list) {
      for (size_t i = 0; i < arg.items.size(); ++i) {
        Argument& item = arg.items[i];
        if (!left.whole(axes.at(i)) && graph::integer(item) != -1) set_integer(item, left.count(axes[i]));
      }
      return;
    }
    std::vector<int64_t> sizes = graph::integers(arg).value();
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (!left.whole(axes.at(i)) && sizes[i] != -1) sizes[i] = left.count(axes[i]);
    }
    arg.literal = sizes;
  });
}

}  // namespace ulp::prune
