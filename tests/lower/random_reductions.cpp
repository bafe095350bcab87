// Steps that reduce dimensions or go along one.
#include "random_dims.h"

namespace ulp::test::recipe {

namespace {

using at::Tensor;
using Maybe = std::optional<RandomStep>;

Maybe reduce(RandomNet& net, size_t x) {
  if (rank_of(net, x) < 2) return {};
  const std::vector<int64_t> dims = some_dims(net, x, net.dice.between(1, 3));
  const bool keep = net.dice.coin();
  const int64_t kind = net.dice.below(9), one = dims[0];
  static constexpr const char* kWords[] = {"sum", "mean",      "amax", "amin", "std",
                                           "var", "logsumexp", "norm", "norm1"};
  const std::string words = say(kWords[kind], "(", at::IntArrayRef(dims), keep ? ", keepdim)" : ")");
  if ((kind == 4 || kind == 5) && net.value(x).size(one) < 3) return {};
  return step_on(x, words, [=](const Tensor& a) -> Tensor {
    switch (kind) {
      case 0:
        return a.sum(dims, keep);
      case 1:
        return a.mean(dims, keep);
      case 2:
        return a.amax(dims, keep);
      case 3:
        return a.amin(dims, keep);
      case 4:
        return (a + a.sigmoid()).std(dims, true, keep);
      case 5:
        return a.var(dims, false, keep);
      case 6:
        return a.logsumexp(dims, keep);
      case 7:
        return torch::linalg_vector_norm(a, 2, dims, keep);
      default:
        return torch::linalg_vector_norm(a, 1, dims, keep);
    }
  });
}

Maybe extreme(RandomNet& net, size_t x) {
  const auto dim = any_dim(net, x);
  if (!dim) return {};
  const bool keep = net.dice.coin();
  return step_on(x, say("max(", dim->index, keep ? ", keepdim)" : ")"),
                 [=, d = dim->index](const Tensor& a) { return std::get<0>(a.max(d, keep)); });
}

Maybe along(RandomNet& net, size_t x) {
  const auto dim = any_dim(net, x);
  if (!dim) return {};
  const int64_t d = from_either_end(net, x, dim->index);
  switch (net.dice.below(3)) {
    case 0:
      return step_on(x, say("cumsum(", d, ")"), [=](const Tensor& a) { return a.cumsum(d); });
    case 1:
      return step_on(x, say("softmax(", d, ")"), [=](const Tensor& a) { return a.softmax(d); });
    default:
      return step_on(x, say("log_softmax(", d, ")"), [=](const Tensor& a) { return a.log_softmax(d); });
  }
}

}  // namespace

RandomFamily random_reductions() {
  static constexpr DrawStep kSteps[] = {reduce, reduce, extreme, along, along};
  return {kSteps};
}

}  // namespace ulp::test::recipe
