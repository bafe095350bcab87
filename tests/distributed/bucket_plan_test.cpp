// Where gradients lie in what travels.
#include "ulp/distributed/bucket_plan.h"

#include <torch/torch.h>

#include "error_of.h"

namespace {

using namespace ulp::distributed;

std::vector<at::Tensor> of_sizes(const std::vector<int64_t>& sizes) {
  std::vector<at::Tensor> tensors;
  for (const int64_t size : sizes) tensors.push_back(torch::zeros({size}));
  return tensors;
}

std::vector<std::vector<size_t>> members(const std::vector<BucketPlan>& plans) {
  std::vector<std::vector<size_t>> all;
  for (const BucketPlan& plan : plans) {
    all.emplace_back();
    for (const BucketSlot& slot : plan.slots) all.back().push_back(slot.parameter);
  }
  return all;
}

TEST(BucketPlan, TakesTheLastParametersFirst) {
  const auto parameters = of_sizes({300, 200, 100, 50});
  EXPECT_EQ(members(plan_buckets(parameters, 1, /*first_bytes=*/200, /*bytes=*/1200)),
            (std::vector<std::vector<size_t>>{{3}, {2, 1}, {0}}));
  EXPECT_EQ(members(plan_buckets(parameters, 1, 1 << 20, 1 << 20)),
            (std::vector<std::vector<size_t>>{{3, 2, 1, 0}}));
}

TEST(BucketPlan, KeepsTypesApartAndOrdersBucketsByTheirFirstParameter) {
  auto parameters = of_sizes({10, 10, 10, 10});
  parameters[1] = parameters[1].to(at::kBFloat16);
  parameters[3] = parameters[3].to(at::kBFloat16);
  EXPECT_EQ(members(plan_buckets(parameters, 1, 1 << 20, 1 << 20)),
            (std::vector<std::vector<size_t>>{{3, 1}, {2, 0}}));
}

TEST(BucketPlan, AlignsParametersAndShares) {
  for (const int ranks : {1, 2, 3, 8}) {
    const auto parameters = of_sizes({1, 127, 128, 129, 1000});
    const BucketPlan plan = plan_bucket(parameters, {4, 3, 2, 1, 0}, ranks);
    EXPECT_EQ(plan.size % (ranks * kBucketAlignment), 0);
    for (const BucketSlot& slot : plan.slots) EXPECT_EQ(slot.begin % kBucketAlignment, 0);
  }
}

TEST(BucketPlan, SharesHoldEachElementOnce) {
  const auto parameters = of_sizes({1, 127, 128, 129, 1000, 5000});
  const BucketPlan plan = plan_bucket(parameters, {5, 4, 3, 2, 1, 0}, 3);
  std::vector<int64_t> held(parameters.size());
  for (int rank = 0; rank < 3; ++rank) {
    int64_t end = 0;
    for (const BucketPiece& piece : shards_of(plan, rank, 3)) {
      EXPECT_EQ(piece.begin, held[piece.parameter]) << "of parameter " << piece.parameter;
      EXPECT_EQ(piece.begin % kBucketAlignment, 0);
      EXPECT_GE(piece.at, end);
      end = piece.at + piece.size;
      held[piece.parameter] += piece.size;
      const BucketSlot& slot = plan.slots[parameters.size() - 1 - piece.parameter];
      EXPECT_EQ(plan.size / 3 * rank + piece.at, slot.begin + piece.begin);
    }
    EXPECT_LE(end, plan.size / 3);
  }
  for (size_t i = 0; i < parameters.size(); ++i) EXPECT_EQ(held[i], parameters[i].numel());
}

TEST(BucketPlan, RefusesEmptyBuckets) {
  EXPECT_ERROR(plan_buckets(of_sizes({1}), 1, 0, 1), "expected sizes of buckets > 0, got 0 and 1 bytes");
}

}  // namespace
