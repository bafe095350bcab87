// gather, scatter and sort in plain loops.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "plain_loops.h"
#include "plain_values.h"

namespace ulp::runtime::plain {
namespace {

using Sizes = std::vector<int64_t>;

Sizes sizes_of(const View& x, int64_t batch) {
  Sizes sizes = x.info.shape;
  sizes[0] = first_of(x, batch);
  return sizes;
}

/// The indices of element i, the outermost dimension first.
Sizes indices_of(const Sizes& sizes, int64_t i) {
  Sizes indices(sizes.size());
  for (size_t d = sizes.size(); d-- > 0; i /= sizes[d]) indices[d] = i % sizes[d];
  return indices;
}

int64_t element_of(const Sizes& sizes, const Sizes& indices) {
  int64_t i = 0;
  for (size_t d = 0; d < sizes.size(); ++d) i = i * sizes[d] + indices[d];
  return i;
}

int64_t product(const Sizes& sizes, size_t begin, size_t end) {
  return std::accumulate(sizes.begin() + static_cast<int64_t>(begin),
                         sizes.begin() + static_cast<int64_t>(end), int64_t{1}, std::multiplies<>());
}

float joined(kernels::ScatterMode mode, float held, float value) {
  using enum kernels::ScatterMode;
  if (mode == add) return held + value;
  if (mode == multiply) return held * value;
  if (mode == max) return std::max(held, value);
  return mode == min ? std::min(held, value) : value;
}

}  // namespace

void gather(const Plan& plan, const Step& step, const std::vector<View>& x, const View& y, int64_t batch) {
  const auto& own = step.get<GatherAttributes>();
  const auto dim = static_cast<size_t>(own.dim);
  const Sizes from = sizes_of(x[0], batch), to = sizes_of(y, batch);
  View ids = x.back();
  std::vector<std::byte> fixed;
  if (x.size() == 1) {
    const Constant& constant = plan.constants.at(step.constants.at("ids"));
    fixed.assign(constant.bytes.data(), constant.bytes.data() + constant.bytes.size());
    ids = {fixed.data(), {.type = constant.type, .shape = constant.shape}};
  }
  const int64_t list = x.size() == 1 ? product(ids.info.shape, 0, ids.info.shape.size())
                                     : element_count(ids.info, 1) / first_of(ids, 1);
  for (int64_t i = 0; i < product(to, 0, to.size()); ++i) {
    const Sizes at = indices_of(to, i);
    const int64_t inner = product(from, dim + 1, from.size());
    const int64_t outer = own.each ? 0 : i / inner / list;  // over dimensions before `dim`, the batch too
    const int64_t place = own.each ? i % (product(to, 1, to.size())) : i / inner % list;
    const int64_t item = x.size() == 1 ? 0 : at[0] * list;
    int64_t id = ids.id(item + place);
    if (id < 0) id += from[dim];
    Sizes source = at;
    if (own.each) {
      source[dim] = id;
      y.set_steps(i, x[0].steps(element_of(from, source)));
    } else {
      y.set_steps(i, x[0].steps((outer * from[dim] + id) * inner + i % inner));
    }
  }
}

void scatter(const Step& step, const std::vector<View>& x, const View& y, int64_t batch) {
  const auto& own = step.get<ScatterAttributes>();
  const Sizes to = sizes_of(y, batch), from = sizes_of(x[1], batch);
  for (int64_t i = 0; i < product(to, 0, to.size()); ++i) y.set_steps(i, x[0].steps(i));
  for (int64_t i = 0; i < product(from, 0, from.size()); ++i) {
    Sizes target = indices_of(from, i);
    target[static_cast<size_t>(own.dim)] = x[1].id(i);
    const int64_t place = element_of(to, target);
    const float value = x.size() == 3 ? x[2].steps(i) : own.value;
    y.set_steps(place, joined(own.mode, y.steps(place), value));
  }
}

void sort(const Step& step, const View& x, const View& y, int64_t batch) {
  const auto& own = step.get<SortAttributes>();
  const auto dim = static_cast<size_t>(own.dim);
  const Sizes from = sizes_of(x, batch);
  const int64_t inner = product(from, dim + 1, from.size()), kept = y.info.shape[dim];
  for (int64_t line = 0; line < product(from, 0, dim) * inner; ++line) {
    const int64_t first = line / inner * from[dim] * inner + line % inner;
    std::vector<int64_t> places(static_cast<size_t>(from[dim]));
    std::iota(places.begin(), places.end(), 0);
    const auto before = [&](int64_t a, int64_t b) {
      const float left = x.steps(first + a * inner), right = x.steps(first + b * inner);
      if (own.descending) return std::isnan(left) ? !std::isnan(right) : left > right;
      return std::isnan(right) ? !std::isnan(left) : left < right;
    };
    std::ranges::stable_sort(places, before);
    for (int64_t k = 0; k < kept; ++k) {
      const int64_t place = places[static_cast<size_t>(k)],
                    to = (line / inner * kept + k) * inner + line % inner;
      y.set_steps(to, own.places ? static_cast<float>(place) : x.steps(first + place * inner));
    }
  }
}

}  // namespace ulp::runtime::plain
