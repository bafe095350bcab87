// What the tests of cutting share: the proof that a cut network is the masked one.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/prune/structured/groups.h"
#include "ulp/prune/structured/remove_units.h"

namespace ulp::test {

using Captured = std::shared_ptr<graph::GraphModule>;

/// The group that has this dimension of a tensor as a member; null where none has.
inline const prune::Group* group_with(const prune::Groups& groups, const std::string& tensor, int64_t dim) {
  for (const prune::Group& group : groups.groups) {
    for (const prune::Member& member : group.members) {
      if (member.tensor == tensor && member.dim == dim) return &group;
    }
  }
  return nullptr;
}

/// Some units of each group, never all; with `share` 0 none.
inline prune::Removals some_units(const prune::Groups& groups, double share, uint64_t seed) {
  std::mt19937_64 random(seed);
  prune::Removals removals;
  for (const prune::Group& group : groups.groups) {
    std::vector<int64_t> units(static_cast<size_t>(group.units));
    for (size_t i = 0; i < units.size(); ++i) units[i] = static_cast<int64_t>(i);
    std::shuffle(units.begin(), units.end(), random);
    units.resize(std::min(units.size() - 1,
                          static_cast<size_t>(std::ceil(share * static_cast<double>(units.size())))));
    removals.units.push_back(units);
  }
  return removals;
}

inline prune::Removals no_units(const prune::Groups& groups) {
  return {std::vector<std::vector<int64_t>>(groups.groups.size())};
}

/// A copy of the module with the units zeroed.
inline Captured masked(const graph::GraphModule& module, const prune::Groups& groups,
                       const prune::Removals& removals) {
  Captured copy = prune::remove_units(module, groups, no_units(groups)).module;
  prune::zero_units(*copy, groups, removals);
  return copy;
}

inline at::Tensor kept_part(at::Tensor tensor, const std::vector<std::vector<int64_t>>& kept) {
  for (size_t d = 0; d < kept.size(); ++d)
    tensor = tensor.index_select(static_cast<int64_t>(d), torch::tensor(kept[d], torch::kLong));
  return tensor;
}

inline void expect_near(const at::Tensor& want, const at::Tensor& got, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(want.sizes(), got.sizes()) << what;
  if (want.numel() == 0) return;
  const at::Tensor w = want.detach().to(torch::kDouble), g = got.detach().to(torch::kDouble);
  ASSERT_TRUE(torch::equal(w.isfinite(), g.isfinite())) << what;
  const double largest = w.nan_to_num(0, 0, 0).abs().max().item<double>(),
               error = (w - g).nan_to_num(0, 0, 0).abs().max().item<double>();
  EXPECT_LE(error, tolerance * std::max(largest, 1e-3)) << what << ", largest " << largest;
}

/// Results of both modes, gradients and buffers. `tolerance` is relative to the largest element of each tensor.
inline void expect_cut_is_masked(const Captured& module, const std::vector<std::vector<at::Tensor>>& batches,
                                 const prune::Groups& groups, const prune::Removals& removals,
                                 double tolerance, bool train = true) {
  const Captured zeroed = masked(*module, groups, removals);
  const prune::RemovalResult small = prune::remove_units(*module, groups, removals);
  for (const bool training : {false, true}) {
    if (training && !train) continue;
    zeroed->train(training);
    small.module->train(training);
    for (const auto& inputs : batches) {
      zeroed->zero_grad();
      small.module->zero_grad();
      const std::string what =
          std::string(training ? "train" : "eval") + ", batch " + std::to_string(inputs[0].size(0));
      torch::manual_seed(3);
      const auto want = zeroed->forward_all(inputs);
      torch::manual_seed(3);
      const auto got = small.module->forward_all(inputs);
      ASSERT_EQ(want.size(), got.size());
      at::Tensor loss_want = torch::zeros({}, torch::kDouble), loss_got = torch::zeros({}, torch::kDouble);
      for (size_t i = 0; i < want.size(); ++i) {
        expect_near(want[i], got[i], tolerance, what + ", result " + std::to_string(i));
        if (!want[i].requires_grad() || testing::Test::HasFatalFailure()) continue;
        const at::Tensor weights = torch::randn(want[i].sizes(), torch::kDouble);
        loss_want = loss_want + (want[i].to(torch::kDouble).nan_to_num(0, 0, 0) * weights).sum();
        loss_got = loss_got + (got[i].to(torch::kDouble).nan_to_num(0, 0, 0) * weights).sum();
      }
      if (testing::Test::HasFailure() || !training || !loss_want.requires_grad()) continue;
      loss_want.backward();
      loss_got.backward();
      double largest = 0;
      for (const at::Tensor& parameter : zeroed->parameters()) {
        if (parameter.grad().defined())
          largest = std::max(largest, parameter.grad().abs().max().item<double>());
      }
      const auto parameters = small.module->named_parameters();
      for (const auto& item : zeroed->named_parameters()) {
        ASSERT_EQ(item.value().grad().defined(), parameters[item.key()].grad().defined()) << item.key();
        if (!item.value().grad().defined()) continue;
        const at::Tensor w = kept_part(item.value().grad(), small.kept.at(item.key()));
        ASSERT_EQ(w.sizes(), parameters[item.key()].grad().sizes()) << item.key();
        EXPECT_LE((w - parameters[item.key()].grad()).abs().max().item<double>(),
                  tolerance * std::max(largest, 1e-3))
            << what << ", gradient of " << item.key();
      }
    }
  }
  const auto buffers = small.module->named_buffers();
  for (const auto& item : zeroed->named_buffers()) {
    if (!item.key().ends_with("running_var"))
      expect_near(kept_part(item.value(), small.kept.at(item.key())), buffers[item.key()], tolerance,
                  item.key());
  }
}

inline std::string words(const prune::Groups& groups) {
  std::ostringstream out;
  out << groups;
  return out.str();
}

}  // namespace ulp::test
