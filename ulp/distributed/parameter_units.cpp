#include "ulp/distributed/parameter_units.h"

#include <ATen/core/grad_mode.h>

#include <map>
#include <unordered_map>

#include "ulp/base/error.h"

namespace ulp::distributed {

using Buckets = std::vector<std::unique_ptr<Bucket>>;

ParameterUnits::ParameterUnits(torch::nn::Module& model, int64_t bytes) {
  const auto* captured = dynamic_cast<const graph::GraphModule*>(&model);
  if (captured == nullptr) {
    fail("distributed.DataParallel",
         "expected a captured model (ulp::capture) where parameters are shared, got ", model.name());
  }
  segments_ = std::make_unique<Segments>(*captured, bytes);
}

std::vector<BucketPlan> ParameterUnits::plan(const std::vector<at::Tensor>& parameters, int ranks) {
  constexpr size_t kTied = ~size_t{0};
  std::unordered_map<const c10::TensorImpl*, size_t> piece_of;
  for (size_t s = 0; s < segments_->all().size(); ++s) {
    for (const at::Tensor& parameter : segments_->all()[s].parameters) {
      const auto [at, fresh] = piece_of.try_emplace(parameter.unsafeGetTensorImpl(), s);
      if (!fresh) at->second = kTied;
    }
  }
  // Piece by piece from the last one, and types apart: the types of a piece follow one another.
  using Key = std::pair<size_t, c10::ScalarType>;
  std::map<Key, std::vector<size_t>, std::greater<>> members;
  std::vector<size_t> rest;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto piece = piece_of.find(parameters[i].unsafeGetTensorImpl());
    const bool own = piece != piece_of.end() && piece->second != kTied;
    if (own) {
      members[{piece->second, parameters[i].scalar_type()}].push_back(i);
    } else {
      rest.push_back(i);
    }
  }
  std::vector<BucketPlan> plans;
  buckets_of_.assign(segments_->all().size(), {});
  for (const auto& [key, indices] : members) {
    buckets_of_[key.first].push_back(plans.size());
    plans.push_back(plan_bucket(parameters, indices, ranks));
  }
  std::map<c10::ScalarType, std::vector<size_t>> tied;
  for (const size_t i : rest) tied[parameters[i].scalar_type()].push_back(i);
  for (const auto& [type, indices] : tied) {
    tied_.push_back(plans.size());
    plans.push_back(plan_bucket(parameters, indices, ranks));
  }
  return plans;
}

void ParameterUnits::shard(const Buckets& buckets) {
  for (const auto& bucket : buckets) {
    bucket->flatten_parameters();
    bucket->shard_parameters();
  }
}

/// The parameters of a piece, and a start of those of the piece that comes after it.
void ParameterUnits::gather(size_t segment, const Buckets& buckets, bool forward) const {
  for (const size_t bucket : tied_) buckets[bucket]->gather();
  for (const size_t bucket : buckets_of_[segment]) buckets[bucket]->gather();
  const size_t next = forward ? segment + 1 : segment - 1;  // below the first one is none
  if (next >= buckets_of_.size()) return;
  for (const size_t bucket : buckets_of_[next]) buckets[bucket]->prefetch();
}

at::Tensor ParameterUnits::forward(const std::vector<at::Tensor>& inputs, const Buckets& buckets) const {
  const bool trains = at::GradMode::is_enabled();
  const auto before = [&](size_t segment) { gather(segment, buckets, /*forward=*/true); };
  const auto after = [&](size_t segment, const std::vector<at::Tensor>& results) {
    bool returns = false;  // backward begins with this piece
    for (const at::Tensor& result : results) {
      if (!trains || !result.requires_grad()) continue;
      result.register_hook([this, segment, &buckets](const at::Tensor& gradient) {
        gather(segment, buckets, /*forward=*/false);
        return gradient;
      });
      returns = segment + 1 == buckets_of_.size();
    }
    if (returns) return;
    for (const size_t bucket : buckets_of_[segment]) buckets[bucket]->release();
  };
  const at::Tensor result = segments_->run(inputs, before, after);
  if (!trains)
    for (const size_t bucket : tied_) buckets[bucket]->release();
  return result;
}

}  // namespace ulp::distributed
