#include "ulp/prune/structured/importance.h"

#include <torch/utils.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "ulp/base/error.h"
#include "ulp/prune/structured/member_weights.h"
#include "ulp/prune/structured/normalize.h"

namespace ulp::prune {

using graph::Attribute;

namespace {

using UnitScores = std::vector<double>;

const Attribute& attribute_of(const graph::GraphModule& module, const Member& member) {
  return attribute_of(module.graph(), member, "prune.importance");
}

/// Units x elements: what each unit has of a tensor.
at::Tensor slices(const at::Tensor& tensor, const Member& member) {
  std::vector<int64_t> all;
  for (const auto& indices : member.indices) all.insert(all.end(), indices.begin(), indices.end());
  const at::Tensor rows = tensor.detach()
                              .to(at::kDouble)
                              .movedim(member.dim, 0)
                              .index_select(0, torch::tensor(all, tensor.options().dtype(at::kLong)));
  return rows.reshape({static_cast<int64_t>(member.indices.size()), -1}).cpu();
}

UnitScores sums(const at::Tensor& units_by_elements) {
  const at::Tensor total = units_by_elements.sum(1).contiguous();
  return {total.data_ptr<double>(), total.data_ptr<double>() + total.numel()};
}

void add(UnitScores& to, const UnitScores& what) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += what[i];
}

UnitScores filter_norms(const graph::GraphModule& module, const Group& group, bool squared) {
  UnitScores result(static_cast<size_t>(group.units));
  for (const Member& member : group.members) {
    const Attribute& attribute = attribute_of(module, member);
    if (!is_filter(attribute, member)) continue;
    const at::Tensor part = slices(attribute.tensor, member);
    add(result, sums(squared ? part.square() : part.abs()));
  }
  if (squared) std::ranges::transform(result, result.begin(), [](double sum) { return std::sqrt(sum); });
  return result;
}

UnitScores group_norms(const graph::GraphModule& module, const Group& group) {
  UnitScores result(static_cast<size_t>(group.units));
  double members = 0;
  for (const Member& member : group.members) {
    const Attribute& attribute = attribute_of(module, member);
    if (!is_weight(attribute, member)) continue;
    add(result, sums(slices(attribute.tensor, member).square()));
    ++members;
  }
  for (double& score : result) score /= std::max(members, 1.0);
  return result;
}

UnitScores scales(const graph::GraphModule& module, const Group& group) {
  UnitScores result(static_cast<size_t>(group.units));
  double count = 0;
  for (const Member& member : group.members) {
    if (member.role != Role::scale) continue;
    const at::Tensor part = slices(attribute_of(module, member).tensor, member);
    add(result, sums(part.abs()));
    count += static_cast<double>(part.size(1));
  }
  if (count == 0) return UnitScores(result.size(), std::numeric_limits<double>::infinity());
  for (double& score : result) score /= count;
  return result;
}

UnitScores taylor(const graph::GraphModule& module, const Group& group) {
  UnitScores result(static_cast<size_t>(group.units));
  for (const Member& member : group.members) {
    const Attribute& attribute = attribute_of(module, member);
    if (attribute.kind != Attribute::Kind::parameter || !attribute.tensor.requires_grad()) continue;
    if (!attribute.tensor.grad().defined())
      fail("prune.importance", "expected a gradient of '", member.tensor,
           "' for taylor, got none; run backward first");
    add(result, sums((slices(attribute.tensor, member) * slices(attribute.tensor.grad(), member)).abs()));
  }
  return result;
}

UnitScores hessian(const graph::GraphModule& module, const Group& group, const SquaredGradients* squares) {
  if (!squares)
    fail("prune.importance",
         "expected squared gradients for hessian, got none; make them with squared_gradients()");
  UnitScores result(static_cast<size_t>(group.units));
  for (const Member& member : group.members) {
    const Attribute& attribute = attribute_of(module, member);
    if (attribute.kind != Attribute::Kind::parameter || !attribute.tensor.requires_grad()) continue;
    const auto found = squares->find(member.tensor);
    if (found == squares->end() || found->second.sizes() != attribute.tensor.sizes())
      fail("prune.importance", "expected squared gradients of '", member.tensor,
           "' of its sizes for hessian, got ", found == squares->end() ? "none" : "others");
    add(result, sums(slices(attribute.tensor, member).square() * slices(found->second, member)));
  }
  return result;
}

UnitScores distances(const graph::GraphModule& module, const Group& group) {
  std::vector<at::Tensor> rows;
  for (const Member& member : group.members) {
    const Attribute& attribute = attribute_of(module, member);
    if (is_filter(attribute, member)) rows.push_back(slices(attribute.tensor, member));
  }
  if (rows.empty()) return UnitScores(static_cast<size_t>(group.units));
  const at::Tensor filters = torch::cat(rows, 1);
  // Without the matrix product, whose rounding makes equal filters differ.
  return sums(torch::cdist(filters, filters, 2, 2));
}

UnitScores shares(const UnitScores& norms) {
  std::vector<size_t> order(norms.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return norms[a] < norms[b]; });
  UnitScores result(norms.size());
  double above = 0;
  for (auto at = order.rbegin(); at != order.rend(); ++at) {
    above += norms[*at];
    result[*at] = above > 0 ? norms[*at] / above : 0;
  }
  return result;
}

UnitScores draw(const Group& group, std::mt19937_64& random) {
  UnitScores result(static_cast<size_t>(group.units));
  for (double& score : result) score = std::ldexp(static_cast<double>(random() >> 11), -53);
  return result;
}

}  // namespace

bool needs_data(Criterion criterion) {
  switch (criterion) {
    case Criterion::taylor:
    case Criterion::hessian:
    case Criterion::apoz:
    case Criterion::activation:
    case Criterion::rank:
    case Criterion::shapley:
      return true;
    default:
      return false;
  }
}

Importance importance(const graph::GraphModule& module, const Groups& groups,
                      const ImportanceOptions& options) {
  const torch::NoGradGuard no_grad;
  std::mt19937_64 random(options.seed);
  Importance result;
  for (const Group& group : groups.groups) {
    UnitScores scores;
    switch (options.criterion) {
      case Criterion::l1:
      case Criterion::l2:
        scores = filter_norms(module, group, options.criterion == Criterion::l2);
        break;
      case Criterion::group:
        scores = group_norms(module, group);
        break;
      case Criterion::scale:
        scores = scales(module, group);
        break;
      case Criterion::taylor:
        scores = taylor(module, group);
        break;
      case Criterion::hessian:
        scores = hessian(module, group, options.squared_gradients);
        break;
      case Criterion::fpgm:
        scores = distances(module, group);
        break;
      case Criterion::lamp:
        scores = shares(group_norms(module, group));
        break;
      case Criterion::random:
        scores = draw(group, random);
        break;
      case Criterion::apoz:
      case Criterion::activation:
      case Criterion::rank:
      case Criterion::shapley:
        fail("prune.importance", "expected a criterion of weights or gradients, got ",
             enum_name(options.criterion), "; activation_importance() and shapley_values() score by data");
    }
    normalize(scores, options.normalization);
    result.push_back(std::move(scores));
  }
  return result;
}

}  // namespace ulp::prune
