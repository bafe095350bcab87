#include "ulp/distributed/bucket_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ulp/base/error.h"

namespace ulp::distributed {

namespace {

int64_t rounded_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

BucketPlan plan_bucket(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& indices,
                       int ranks) {
  BucketPlan plan;
  int64_t end = 0;
  for (const size_t index : indices) {
    const int64_t size = parameters[index].numel();
    plan.slots.push_back({index, end, size});
    end = rounded_up(end + size, kBucketAlignment);
  }
  plan.size = rounded_up(end, kBucketAlignment * ranks);
  return plan;
}

std::vector<BucketPlan> plan_buckets(const std::vector<at::Tensor>& parameters, int ranks,
                                     int64_t first_bytes, int64_t bytes) {
  if (first_bytes < 1 || bytes < 1)
    fail("distributed.plan_buckets", "expected sizes of buckets > 0, got ", first_bytes, " and ", bytes,
         " bytes");
  struct Open {
    std::vector<size_t> indices;
    int64_t bytes = 0;
  };
  using Kind = std::pair<c10::ScalarType, std::string>;
  std::map<Kind, Open> open;
  std::vector<std::vector<size_t>> closed;
  const auto close = [&](Open& one) {
    if (!one.indices.empty()) closed.push_back(std::move(one.indices));
    one = {};
  };
  for (size_t i = parameters.size(); i-- > 0;) {
    const at::Tensor& parameter = parameters[i];
    Open& its = open[{parameter.scalar_type(), parameter.device().str()}];
    its.indices.push_back(i);
    its.bytes += static_cast<int64_t>(parameter.nbytes());
    if (its.bytes >= (closed.empty() ? first_bytes : bytes)) close(its);
  }
  for (auto& [kind, its] : open) close(its);
  // A bucket is full when backward has reached its first parameter.
  std::ranges::stable_sort(closed, std::greater(), [](const auto& indices) { return indices.back(); });
  std::vector<BucketPlan> plans;
  for (const auto& indices : closed) plans.push_back(plan_bucket(parameters, indices, ranks));
  return plans;
}

std::vector<BucketPiece> shards_of(const BucketPlan& plan, int rank, int ranks) {
  const int64_t share = plan.size / ranks, begin = share * rank, end = begin + share;
  std::vector<BucketPiece> pieces;
  for (const BucketSlot& slot : plan.slots) {
    const int64_t from = std::max(begin, slot.begin), to = std::min(end, slot.begin + slot.size);
    if (from < to) pieces.push_back({slot.parameter, from - slot.begin, to - from, from - begin});
  }
  return pieces;
}

}  // namespace ulp::distributed
