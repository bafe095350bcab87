#include "ulp/prune/structured/regularize.h"

#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/prune/structured/member_weights.h"

namespace ulp::prune {

namespace {

/// A dimension of a weight and the unit that each of its positions is of.
struct Part {
  std::string name;
  at::Tensor weight;
  int64_t dim = 0;
  at::Tensor units;  ///< int64; the number of units for positions that are of none
};

/// Sums over everything but the dimension, in double.
at::Tensor sums_along(const at::Tensor& tensor, int64_t dim) {
  return tensor.to(at::kDouble).movedim(dim, 0).reshape({tensor.size(dim), -1}).sum(1);
}

/// A number for each position of a part, of the weight's type and in a shape that broadcasts over it.
at::Tensor along(const Part& part, const at::Tensor& of_units) {
  std::vector<int64_t> shape(static_cast<size_t>(part.weight.dim()), 1);
  shape[static_cast<size_t>(part.dim)] = -1;
  const at::Tensor padded = torch::cat({of_units, torch::zeros({1}, of_units.options())});
  return padded.index_select(0, part.units).to(part.weight.options()).view(shape);
}

std::vector<Part> parts_of(const graph::Graph& graph, const Group& group, Penalty penalty) {
  std::vector<Part> parts;
  for (const Member& member : group.members) {
    const graph::Attribute& attribute = attribute_of(graph, member, "prune.Regularizer");
    if (!is_weight(attribute, member) || !attribute.tensor.requires_grad()) continue;
    if (penalty == Penalty::slimming && member.role != Role::scale) continue;
    const bool tied = std::ranges::any_of(parts, [&](const Part& part) {
      return part.weight.is_same(attribute.tensor) && part.dim == member.dim;
    });
    if (tied) continue;
    std::vector<int64_t> units(static_cast<size_t>(attribute.tensor.size(member.dim)), group.units);
    for (size_t u = 0; u < member.indices.size(); ++u) {
      for (const int64_t index : member.indices[u])
        units.at(static_cast<size_t>(index)) = static_cast<int64_t>(u);
    }
    parts.push_back({member.tensor, attribute.tensor, member.dim, torch::tensor(units)});
  }
  return parts;
}

/// (Imax - I) / (Imax - Imin) of the finite ones; 0 for the others, and where all are equal.
std::vector<double> unimportance(const std::vector<double>& importance) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  for (const double one : importance) {
    if (!std::isfinite(one)) continue;
    least = std::min(least, one);
    most = std::max(most, one);
  }
  std::vector<double> result;
  for (const double one : importance)
    result.push_back(std::isfinite(one) && most > least ? (most - one) / (most - least) : 0);
  return result;
}

}  // namespace

struct Regularizer::State {
  std::shared_ptr<graph::GraphModule> module;
  Groups groups;
  RegularizeOptions options;
  std::vector<std::vector<Part>> parts;  // of each group
  Importance strengths;

  /// What is added to the gradients of a part.
  at::Tensor term(const Part& part, const at::Tensor& of_units) const {
    const at::Tensor weight = part.weight.detach();
    return along(part, of_units) * (options.penalty == Penalty::slimming ? weight.sign() : weight);
  }

  /// Of each unit: what its weights, or their signs, are multiplied by.
  at::Tensor factors(size_t g) const {
    at::Tensor result = torch::tensor(strengths[g], at::kDouble);
    if (options.penalty != Penalty::group_lasso) return result;
    at::Tensor squares = torch::zeros({groups.groups[g].units + 1}, at::kDouble);
    for (const Part& part : parts[g])
      squares.index_add_(0, part.units, sums_along(part.weight.detach().square(), part.dim).cpu());
    const at::Tensor norms = squares.slice(0, 0, groups.groups[g].units).sqrt();
    return torch::where(norms > 0, result / norms, torch::zeros_like(norms));
  }
};

void RegularizeOptions::validate() const {
  if (!(lambda >= 0 && std::isfinite(lambda)))
    fail("prune.Regularizer", "expected lambda of at least 0, got ", lambda);
  if (!(growth >= 0 && std::isfinite(growth)))
    fail("prune.Regularizer", "expected growth of at least 0, got ", growth);
}

Regularizer::Regularizer(std::shared_ptr<graph::GraphModule> module, Groups groups,
                         const RegularizeOptions& options) {
  options.validate();
  if (!module) fail("prune.Regularizer", "expected a module, got none");
  state_.reset(new State{std::move(module), std::move(groups), options, {}, {}});
  bool any = false;
  for (const Group& group : state_->groups.groups) {
    state_->parts.push_back(parts_of(state_->module->graph(), group, options.penalty));
    any |= !state_->parts.back().empty();
    state_->strengths.emplace_back(static_cast<size_t>(group.units), options.lambda);
  }
  if (!any) {
    fail("prune.Regularizer", "expected ",
         options.penalty == Penalty::slimming ? "trained scales of norms for slimming"
                                              : "trained weights in the groups",
         ", got none");
  }
  if (options.penalty == Penalty::dependency) update();
}

Regularizer::~Regularizer() = default;
Regularizer::Regularizer(Regularizer&&) noexcept = default;
Regularizer& Regularizer::operator=(Regularizer&&) noexcept = default;

const Importance& Regularizer::strengths() const {
  return state_->strengths;
}

void Regularizer::set_strengths(Importance strengths) {
  constexpr const char* kWhere = "prune.Regularizer.set_strengths";
  const std::vector<Group>& groups = state_->groups.groups;
  if (strengths.size() != groups.size())
    fail(kWhere, "expected strengths of ", groups.size(), " groups, got ", strengths.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    if (strengths[g].size() != static_cast<size_t>(groups[g].units))
      fail(kWhere, "expected ", groups[g].units, " strengths for '", groups[g].name(), "', got ",
           strengths[g].size());
  }
  state_->strengths = std::move(strengths);
}

void Regularizer::update() {
  State& state = *state_;
  const Penalty penalty = state.options.penalty;
  if (penalty != Penalty::dependency && penalty != Penalty::growing) return;
  const Importance scores = importance(*state.module, state.groups, state.options.importance);
  for (size_t g = 0; g < scores.size(); ++g) {
    const std::vector<double> low = unimportance(scores[g]);
    for (size_t u = 0; u < low.size(); ++u) {
      double& strength = state.strengths[g][u];
      strength = penalty == Penalty::dependency ? state.options.lambda * std::exp2(4 * low[u])
                                                : strength + state.options.growth * low[u];
    }
  }
}

void Regularizer::add_to_gradients(double scale) {
  const torch::NoGradGuard no_grad;
  const State& state = *state_;
  for (const std::vector<Part>& parts : state.parts) {
    for (const Part& part : parts) {
      if (!part.weight.grad().defined())
        fail("prune.Regularizer", "expected a gradient of '", part.name, "', got none; run backward first");
    }
  }
  for (size_t g = 0; g < state.parts.size(); ++g) {
    if (state.parts[g].empty()) continue;
    const at::Tensor factors = state.factors(g);
    for (const Part& part : state.parts[g]) part.weight.grad().add_(state.term(part, factors), scale);
  }
}

}  // namespace ulp::prune
