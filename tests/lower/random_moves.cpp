// Steps that move elements or join values.
#include <algorithm>

#include "random_dims.h"

namespace ulp::test::recipe {

namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using Maybe = std::optional<RandomStep>;

Maybe permute(RandomNet& net, size_t x) {
  if (rank_of(net, x) < 3) return {};
  std::vector<int64_t> order = some_dims(net, x, 9);
  order.insert(order.begin(), 0);
  const bool dense = net.dice.coin();
  return step_on(x, say("permute(", at::IntArrayRef(order), ")", dense ? ".contiguous()" : ""),
                 [=](const Tensor& a) { return dense ? a.permute(order).contiguous() : a.permute(order); });
}

Maybe transpose(RandomNet& net, size_t x) {
  if (rank_of(net, x) < 3) return {};
  const std::vector<int64_t> dims = some_dims(net, x, 2);
  const int64_t a = from_either_end(net, x, dims[0]), b = from_either_end(net, x, dims[1]);
  return step_on(x, say("transpose(", a, ", ", b, ")"), [=](const Tensor& v) { return v.transpose(a, b); });
}

/// The divisors of a size but 1.
std::vector<int64_t> divisors(int64_t size) {
  std::vector<int64_t> found;
  for (int64_t d = 2; d <= size; ++d) {
    if (size % d == 0) found.push_back(d);
  }
  return found;
}

/// Any sizes of as many elements.
Maybe reshape(RandomNet& net, size_t x) {
  int64_t rest = net.value(x).numel() / net.value(x).size(0);
  std::vector<int64_t> item;
  const int64_t dims = net.dice.between(1, 4);
  for (int64_t d = 1; d < dims && rest > 1; ++d) {
    const std::vector<int64_t> options = divisors(rest);
    item.push_back(options[static_cast<size_t>(net.dice.below(std::ssize(options)))]);
    rest /= item.back();
  }
  item.push_back(rest);
  return step_on(x, say("reshape(N, ", at::IntArrayRef(item), ")"), [=](const Tensor& a) {
    std::vector<int64_t> sizes = item;
    sizes.insert(sizes.begin(), a.size(0));
    return a.reshape(sizes);
  });
}

Maybe flatten(RandomNet& net, size_t x) {
  if (rank_of(net, x) < 3) return {};
  const int64_t from = net.dice.between(1, rank_of(net, x) - 2);
  return step_on(x, say("flatten(", from, ")"), [=](const Tensor& a) { return a.flatten(from); });
}

Maybe unsqueeze(RandomNet& net, size_t x) {
  const int64_t dim = net.dice.between(1, rank_of(net, x));
  const int64_t times = net.dice.below(3);
  if (times == 0) return step_on(x, say("unsqueeze(", dim, ")"), [=](auto& a) { return a.unsqueeze(dim); });
  return step_on(x, say("unsqueeze(", dim, ").expand to ", times + 1), [=](const Tensor& a) {
    const Tensor made = a.unsqueeze(dim);
    std::vector<int64_t> sizes(static_cast<size_t>(made.dim()), -1);
    sizes[static_cast<size_t>(dim)] = times + 1;
    return made.expand(sizes);
  });
}

Maybe squeeze(RandomNet& net, size_t x) {
  for (int64_t d = 1; d < rank_of(net, x); ++d) {
    if (net.value(x).size(d) == 1)
      return step_on(x, say("squeeze(", d, ")"), [=](auto& a) { return a.squeeze(d); });
  }
  return {};
}

Maybe slice(RandomNet& net, size_t x) {
  const auto dim = any_dim(net, x, 2);
  if (!dim) return {};
  const int64_t begin = net.dice.below(dim->size), end = net.dice.between(begin + 1, dim->size),
                step = net.dice.between(1, 3);
  const int64_t d = from_either_end(net, x, dim->index);
  return step_on(x, say("slice(", d, ", ", begin, ", ", end, ", ", step, ")"),
                 [=](const Tensor& a) { return a.slice(d, begin, end, step); });
}

Maybe select(RandomNet& net, size_t x) {
  const auto dim = any_dim(net, x);
  if (!dim) return {};
  const int64_t index = net.dice.between(-dim->size, dim->size - 1);
  return step_on(x, say("select(", dim->index, ", ", index, ")"),
                 [=, d = dim->index](const Tensor& a) { return a.select(d, index); });
}

/// One of the parts, or the sum of the first and the last.
Maybe parts(RandomNet& net, size_t x) {
  const auto dim = any_dim(net, x, 2);
  if (!dim) return {};
  const int64_t d = dim->index, size = net.dice.between(1, dim->size);
  const bool first = net.dice.coin();
  switch (net.dice.below(4)) {
    case 0:
      return step_on(x, say("chunk(", size, ", ", d, ")", first ? "[0]" : "[-1]"), [=](const Tensor& a) {
        const auto made = a.chunk(size, d);
        return first ? made.front() : made.back();
      });
    case 1:
      return step_on(x, say("split(", size, ", ", d, ")", first ? "[0]" : "[-1]"), [=](const Tensor& a) {
        const auto made = a.split(size, d);
        return first ? made.front() : made.back();
      });
    case 2:
      return step_on(x, say("unbind(", d, "), first + last"), [=](const Tensor& a) {
        const auto made = a.unbind(d);
        return made.front() + made.back();
      });
    default:
      if (dim->size % 2 != 0) return {};
      return step_on(x, say("chunk(2, ", d, "), first * sigmoid(second)"), [=](const Tensor& a) {
        const auto made = a.chunk(2, d);
        return made[0] * torch::sigmoid(made[1]);
      });
  }
}

Maybe flip(RandomNet& net, size_t x) {
  if (rank_of(net, x) < 2) return {};
  const std::vector<int64_t> dims = some_dims(net, x, net.dice.between(1, 2));
  return step_on(x, say("flip(", at::IntArrayRef(dims), ")"), [=](const Tensor& a) { return a.flip(dims); });
}

Maybe roll(RandomNet& net, size_t x) {
  const auto dim = any_dim(net, x);
  if (!dim) return {};
  const int64_t shift = net.dice.between(-5, 5);
  return step_on(x, say("roll(", shift, ", ", dim->index, ")"),
                 [=, d = dim->index](const Tensor& a) { return a.roll({shift}, {d}); });
}

/// What is left of a dimension stays above 0; borders of its own elements are smaller than it.
Maybe pad(RandomNet& net, size_t x) {
  const int64_t rank = rank_of(net, x);
  if (rank < 2) return {};
  const int64_t mode = net.dice.below(4);
  const bool constant = mode == 0 || rank < 3;
  const int64_t dims = constant ? net.dice.between(1, rank - 1) : rank - 2;
  if (!constant && rank == 2) return {};
  std::vector<int64_t> sides;
  for (int64_t i = 1; i <= dims; ++i) {
    const int64_t size = net.value(x).size(rank - i), most = constant ? 3 : std::min<int64_t>(3, size - 1);
    for (int side = 0; side < 2; ++side)
      sides.push_back(net.dice.between(constant && size > 2 ? -1 : 0, most));
  }
  F::PadFuncOptions options(sides);
  const char* word = "constant";
  const double value = net.dice.coin() ? 0 : 0.5;
  if (constant) {
    options.mode(torch::kConstant).value(value);
  } else if (mode == 1) {
    options.mode(torch::kReflect), word = "reflect";
  } else if (mode == 2) {
    options.mode(torch::kReplicate), word = "replicate";
  } else {
    options.mode(torch::kCircular), word = "circular";
  }
  return step_on(x, say("pad(", at::IntArrayRef(sides), ", ", word, constant ? say(", ", value) : "", ")"),
                 [=](const Tensor& a) { return F::pad(a, options); });
}

Maybe repeat(RandomNet& net, size_t x) {
  const auto dim = any_dim(net, x);
  if (!dim) return {};
  const int64_t times = net.dice.between(2, 3), d = dim->index;
  if (net.dice.coin()) {
    return step_on(x, say("repeat_interleave(", times, ", ", d, ")"),
                   [=](const Tensor& a) { return a.repeat_interleave(times, d); });
  }
  std::vector<int64_t> all(static_cast<size_t>(rank_of(net, x)), 1);
  all[static_cast<size_t>(d)] = times;
  return step_on(x, say("repeat(", at::IntArrayRef(all), ")"),
                 [=](const Tensor& a) { return a.repeat(all); });
}

Maybe unfold(RandomNet& net, size_t x) {
  const auto dim = any_dim(net, x, 2);
  if (!dim) return {};
  const int64_t size = net.dice.between(1, std::min<int64_t>(dim->size, 4)), step = net.dice.between(1, 3);
  return step_on(x, say("unfold(", dim->index, ", ", size, ", ", step, ")"),
                 [=, d = dim->index](const Tensor& a) { return a.unfold(d, size, step); });
}

Maybe shuffle_pixels(RandomNet& net, size_t x) {
  if (rank_of(net, x) != 4) return {};
  const at::IntArrayRef sizes = net.value(x).sizes();
  if (sizes[1] % 4 == 0)
    return step_on(x, "pixel_shuffle(2)", [](auto& a) { return at::pixel_shuffle(a, 2); });
  if (sizes[2] % 2 != 0 || sizes[3] % 2 != 0) return {};
  return step_on(x, "pixel_unshuffle(2)", [](auto& a) { return at::pixel_unshuffle(a, 2); });
}

/// Another value of as many dimensions whose sizes are the same, but for one dimension where `but` is one.
std::optional<size_t> fitting(RandomNet& net, size_t x, int64_t but = -1) {
  const auto start = static_cast<size_t>(net.dice.below(static_cast<int64_t>(net.values())));
  for (size_t i = 0; i < net.values(); ++i) {
    const size_t y = (start + i) % net.values();
    if (rank_of(net, y) != rank_of(net, x)) continue;
    bool fits = true;
    for (int64_t d = 1; d < rank_of(net, x); ++d)
      fits = fits && (d == but || net.value(x).size(d) == net.value(y).size(d));
    if (fits) return y;
  }
  return {};
}

Maybe cat(RandomNet& net, size_t x) {
  const auto dim = any_dim(net, x);
  if (!dim) return {};
  const size_t y = fitting(net, x, dim->index).value_or(x);
  const int64_t d = from_either_end(net, x, dim->index);
  const bool three = net.dice.below(3) == 0;
  return RandomStep{
      say("cat(a, b", three ? ", a" : "", "; ", d, ")"), {x, y}, [=](const std::vector<Tensor>& v) {
        return three ? torch::cat({v[0], v[1], v[0]}, d) : torch::cat({v[0], v[1]}, d);
      }};
}

Maybe stack(RandomNet& net, size_t x) {
  const size_t y = fitting(net, x).value_or(x);
  const int64_t d = net.dice.between(1, rank_of(net, x));
  return RandomStep{
      say("stack(", d, ")"), {x, y}, [=](const std::vector<Tensor>& v) { return torch::stack(v, d); }};
}

}  // namespace

RandomFamily random_moves() {
  static constexpr DrawStep kSteps[] = {permute,   transpose, reshape, reshape,       flatten,
                                        unsqueeze, squeeze,   slice,   select,        flip,
                                        roll,      repeat,    unfold,  shuffle_pixels};
  return {kSteps, true};
}

RandomFamily random_joins() {
  static constexpr DrawStep kSteps[] = {cat, cat, stack, parts, pad};
  return {kSteps};
}

}  // namespace ulp::test::recipe
