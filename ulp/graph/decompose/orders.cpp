// What is ordered along a dimension: elements of a rank, running extremes and sums, and pairs of reductions.
#include <torch/types.h>

#include <numeric>
#include <utility>

#include "ulp/graph/decompose/table.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

namespace {

using V = Formula::V;
using Dims = std::vector<int64_t>;

/// In rising order along a dimension, NaN last; and where the elements were.
std::pair<V, V> sorted(Formula& f, V x, int64_t dim) {
  V values = f.call("aten::sort", {x, c10::IValue(dim), c10::IValue(false)}, x->meta->dtype, x->meta->sizes);
  V places = values->producer->output(1);
  places->meta = TensorMeta{.dtype = at::kLong, .sizes = x->meta->sizes};
  return {values, places};
}

/// The element of this rank, and where it is. `nan_first`: a row with a NaN gives that, and where the first
/// one is.
void give_element(Formula& f, V x, int64_t dim, int64_t rank, bool nan_first) {
  auto [values, places] = sorted(f, x, dim);
  V value = f.slice(values, dim, rank, 1), place = f.slice(places, dim, rank, 1);
  const bool several = f.node().outputs().size() > 1;
  if (nan_first && at::isFloatingType(x->meta->dtype)) {
    V none = f.to(f.compare("aten::ne", x, x), x->meta->dtype);
    V found = f.compare("aten::gt", f.reduce("aten::amax", none, {dim}), 0.0);
    value = f.where(found, f.reduce("aten::sum.dim_IntList", x, {dim}), value);
    if (several && f.is_read(1)) {
      V first =
          f.call("aten::argmax", {none, c10::IValue(dim), c10::IValue(true)}, at::kLong, place->meta->sizes);
      place = f.where(found, first, place);
    }
  }
  const auto shaped = [&](V made) { return f.view(made, f.node().output()->meta->sizes); };
  if (!several) return f.result(shaped(value));
  f.result(0, shaped(value));
  f.result(1, shaped(place));
}

/// The lower one of the two in the middle.
void median(Formula& f) {
  V x = f.operand("self");
  if (f.node().outputs().size() > 1) {
    const int64_t dim = f.dim("dim", x), count = Formula::size(x, dim);
    if (count < 1) throw CannotWrite{"expected at least one element"};
    return give_element(f, x, dim, (count - 1) / 2, true);
  }
  int64_t count = 1;
  for (int64_t d = 0; d < std::ssize(x->meta->sizes); ++d) count *= Formula::size(x, d);
  if (count < 1) throw CannotWrite{"expected at least one element"};
  give_element(f, f.view(x, fixed(Dims{count})), 0, (count - 1) / 2, true);
}

void kthvalue(Formula& f) {
  V x = f.operand("self");
  const int64_t dim = f.dim("dim", x), k = f.integer("k");
  if (k < 1 || k > Formula::size(x, dim)) throw CannotWrite{"expected 'k' to be one of the elements"};
  give_element(f, x, dim, k - 1, false);
}

/// Runs `join` over all elements up to each one, in as many rounds as the size has digits: after a round
/// each holds the join of twice as many. Pairs of an earlier and a later part are joined.
template <typename Join>
std::vector<V> scanned(Formula& f, std::vector<V> parts, int64_t dim, Join join) {
  const int64_t count = Formula::size(parts.at(0), dim);
  for (int64_t step = 1; step < count; step *= 2) {
    std::vector<V> early, late;
    for (V part : parts) {
      early.push_back(f.slice(part, dim, 0, count - step));
      late.push_back(f.slice(part, dim, step, count - step));
    }
    const std::vector<V> joined = join(early, late);
    for (size_t i = 0; i < parts.size(); ++i)
      parts[i] = f.cat({f.slice(parts[i], dim, 0, step), joined[i]}, dim);
  }
  return parts;
}

/// The largest or smallest so far, and where: the last of several, and a NaN from the first one on.
void running_extreme(Formula& f) {
  V x = f.operand("self");
  const int64_t dim = f.dim("dim", x), rank = std::ssize(x->meta->sizes);
  const char* op = f.node().is("aten::cummax") ? "aten::ge" : "aten::le";
  V place = f.places(Formula::size(x, dim), dim, rank, at::kLong);
  place = f.where(f.compare("aten::eq", x, x), place, place);  // of the sizes of x
  const auto join = [&](const std::vector<V>& early, const std::vector<V>& late) {
    V takes = f.compare(op, late[0], early[0]);
    if (at::isFloatingType(x->meta->dtype)) takes = f.either(takes, f.compare("aten::ne", late[0], late[0]));
    return std::vector<V>{f.where(takes, late[0], early[0]), f.where(takes, late[1], early[1])};
  };
  const std::vector<V> made = scanned(f, {x, place}, dim, join);
  f.result(0, made[0]);
  f.result(1, made[1]);
}

/// log(e^a + e^b), also of infinities.
V log_of_both(Formula& f, V a, V b) {
  constexpr double kLn2 = 0.693147180559945309417232121458;
  V more = f.map("aten::log1p", f.exp(f.neg(f.abs(f.sub(a, b)))));
  return f.where(f.compare("aten::eq", a, b), f.add(a, kLn2), f.add(f.maximum(a, b), more));
}

void logcumsumexp(Formula& f) {
  V x = f.operand("self");
  if (x->meta->sizes.empty()) throw CannotWrite{"expected one dimension or more"};
  const auto join = [&](const std::vector<V>& early, const std::vector<V>& late) {
    return std::vector<V>{log_of_both(f, early[0], late[0])};
  };
  f.result(scanned(f, {f.to(x, f.type())}, f.dim("dim", x), join)[0]);
}

/// The dimensions of an argument that is one, a list, or none for all, counted from the front.
Dims reduced(Formula& f, V x) {
  const Argument& arg = f.node().arg("dim");
  const int64_t rank = std::ssize(x->meta->sizes);
  Dims dims;
  if (!arg.is_none()) {
    const std::optional<int64_t> one = integer(arg);
    dims = one ? Dims{*one} : f.integers("dim");
  }
  for (int64_t& dim : dims) dim += dim < 0 ? rank : 0;
  if (!dims.empty()) return dims;
  dims.resize(static_cast<size_t>(rank));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

void give_shaped(Formula& f, size_t i, V made) {
  if (f.is_read(i)) f.result(i, f.view(made, f.node().output(i)->meta->sizes));
}

void smallest_and_largest(Formula& f) {
  V x = f.operand("self");
  const Dims dims = reduced(f, x);
  give_shaped(f, 0, f.reduce("aten::amin", x, dims));
  give_shaped(f, 1, f.reduce("aten::amax", x, dims));
}

/// A variance or its root, and the mean.
void spread_and_mean(Formula& f) {
  V x = f.operand("self");
  const std::string& target = f.node().target();
  const bool corrected = target.ends_with(".correction"), whole = !corrected && !target.ends_with(".dim");
  Dims all(x->meta->sizes.size());
  std::iota(all.begin(), all.end(), 0);
  const Dims dims = whole ? all : reduced(f, x);
  c10::IValue correction(c10::Scalar(int64_t{1}));
  if (!corrected) correction = c10::Scalar(int64_t{f.flag("unbiased")});
  if (corrected && !f.node().arg("correction").is_none()) correction = c10::Scalar(f.number("correction"));
  Formula::Sizes sizes = x->meta->sizes;
  for (const int64_t dim : dims) sizes.at(static_cast<size_t>(dim)) = fixed(1);
  const bool root = f.node().is("aten::std_mean");
  V spread = f.call(root ? "aten::std.correction" : "aten::var.correction",
                    {x, c10::IValue(dims), correction, c10::IValue(true)}, x->meta->dtype, sizes);
  give_shaped(f, 0, spread);
  give_shaped(f, 1, f.reduce("aten::mean.dim", x, dims));
}

/// Sums in which a NaN does not count.
void nansum(Formula& f) {
  V x = f.operand("self");
  if (!at::isFloatingType(x->meta->dtype) || f.type() != x->meta->dtype)
    throw CannotWrite{"expected floats, summed in their type"};
  const Dims dims = reduced(f, x);
  V sum = f.reduce("aten::sum.dim_IntList", f.where(f.compare("aten::eq", x, x), x, 0.0), dims);
  f.result(f.view(sum, f.node().output()->meta->sizes));
}

void count_nonzero(Formula& f) {
  V x = f.operand("self");
  V nonzero = f.to(f.compare("aten::ne", x, 0.0), at::kFloat);
  V count = f.reduce("aten::sum.dim_IntList", nonzero, reduced(f, x));
  f.result(f.to(f.view(count, f.node().output()->meta->sizes), f.type()));
}

}  // namespace

DecomposeTable decomposed_orders() {
  static constexpr DecomposeRow kTable[] = {{"aten::median", median},
                                            {"aten::kthvalue", kthvalue},
                                            {"aten::cummax", running_extreme},
                                            {"aten::cummin", running_extreme},
                                            {"aten::logcumsumexp", logcumsumexp},
                                            {"aten::aminmax", smallest_and_largest},
                                            {"aten::var_mean", spread_and_mean},
                                            {"aten::std_mean", spread_and_mean},
                                            {"aten::nansum", nansum},
                                            {"aten::count_nonzero", count_nonzero}};
  return kTable;
}

}  // namespace ulp::graph
