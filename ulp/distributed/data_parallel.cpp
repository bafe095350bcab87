#include "ulp/distributed/data_parallel.h"

#include <ATen/Functions.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <unordered_set>

#include "ulp/base/error.h"
#include "ulp/base/fields.h"
#include "ulp/distributed/data_parallel_state.h"
#include "ulp/distributed/same_model.h"

namespace ulp::distributed {

namespace {

constexpr const char* kDataParallelWhere = "distributed.DataParallel";
constexpr double kMib = 1 << 20;

std::vector<at::Tensor> trained_parameters(const torch::nn::Module& model) {
  std::vector<at::Tensor> found;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : model.parameters()) {
    if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second)
      found.push_back(parameter);
  }
  if (found.empty()) fail(kDataParallelWhere, "expected a model with parameters to train, got none");
  return found;
}

std::optional<c10::ScalarType> sent_type(GradientType type) {
  switch (type) {
    case GradientType::bf16:
      return c10::kBFloat16;
    case GradientType::fp16:
      return c10::kHalf;
    case GradientType::parameter:
      break;
  }
  return std::nullopt;
}

int64_t bytes_of(double mib) {
  return std::max<int64_t>(1, static_cast<int64_t>(mib * kMib));
}

}  // namespace

void DataParallelOptions::visit_fields(FieldVisitor& visitor) {
  visitor({.name = "zero",
           .help = "Several processes, ZeRO stage: shard optimizer state (1), gradients (2), parameters (3) "
                   "across processes"},
          zero);
  visitor({.name = "reduce_type",
           .help = "Several processes: data type of the gradients that are exchanged",
           .flag = "reduce"},
          reduce_type);
  visitor({.name = "bucket_mib",
           .help = "Several processes: MiB of gradients in one bucket",
           .min = 0,
           .max = kMib,
           .above_min = true},
          bucket_mib);
  visitor({.name = "first_bucket_mib",
           .help = "The same of the first ones, which start early",
           .min = 0,
           .max = kMib,
           .above_min = true,
           .flag = ""},
          first_bucket_mib);
}

void DataParallelOptions::validate() const {
  check_limits(kDataParallelWhere, *this);
}

DataParallel::State::State(torch::nn::Module& model_in, std::shared_ptr<ProcessGroup> group_in,
                           const DataParallelOptions& options_in)
    : group(std::move(group_in)),
      options(options_in),
      model(model_in),
      parameters(trained_parameters(model_in)) {
  check_same_model(*group, model);
  broadcast_state(*group, model);
  const BucketOptions kind{.share_gradients = shares_gradients(),
                           .reduce_type = sent_type(options.reduce_type)};
  places_.resize(parameters.size());
  taken_.resize(parameters.size());
  used.resize(parameters.size());
  if (options.zero == ZeroStage::parameters)
    units = std::make_unique<ParameterUnits>(model, bytes_of(options.bucket_mib));
  for (BucketPlan& plan : units ? units->plan(parameters, group->size())
                                : plan_buckets(parameters, group->size(), bytes_of(options.first_bucket_mib),
                                               bytes_of(options.bucket_mib))) {
    for (size_t slot = 0; slot < plan.slots.size(); ++slot)
      places_[plan.slots[slot].parameter] = {buckets.size(), slot};
    missing_.push_back(plan.slots.size());
    buckets.push_back(std::make_unique<Bucket>(std::move(plan), parameters, *group, kind));
  }
  if (units) units->shard(buckets);
  hooks_ = std::make_unique<GradientHooks>(parameters, [this](size_t index) { ready(index); });
}

void DataParallel::State::ready(size_t index) {
  if (!sync && !shares_gradients()) return;
  const std::lock_guard lock(mutex_);
  if (!running_) {
    running_ = true;
    at_end_of_backward([this] { finish(); });
  }
  if (taken_[index])
    fail(kDataParallelWhere,
         "expected each backward to come to its end, got another one after one that failed");
  const Place& place = places_[index];
  buckets[place.bucket]->take(buckets[place.bucket]->plan().slots[place.slot]);
  taken_[index] = true;
  --missing_[place.bucket];
  launch_full_buckets();
}

void DataParallel::State::launch_full_buckets() {
  for (; next_ < buckets.size() && missing_[next_] == 0; ++next_) {
    buckets[next_]->start_reduce();
    // All of backward that reads its parameters is done.
    if (units) buckets[next_]->release();
  }
}

/// Parameters that this backward did not reach: their gradients of earlier micro-batches, or zeros.
void DataParallel::State::take_unused() {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (taken_[i]) continue;
    taken_[i] = parameters[i].grad().defined();
    Bucket& bucket = *buckets[places_[i].bucket];
    bucket.take(bucket.plan().slots[places_[i].slot]);
    --missing_[places_[i].bucket];
  }
}

std::vector<bool> DataParallel::State::used_anywhere() {
  const auto count = static_cast<int64_t>(parameters.size());
  at::Tensor used = at::empty({count}, at::kFloat);
  for (size_t i = 0; i < parameters.size(); ++i) used.mutable_data_ptr<float>()[i] = taken_[i] ? 1 : 0;
  used = used.to(parameters[0].device());
  group->all_reduce(used, ReduceOp::max).wait();
  used = used.to(at::kCPU);
  const float* values = used.const_data_ptr<float>();
  return std::vector<bool>(values, values + count);
}

void DataParallel::State::finish() {
  const std::lock_guard lock(mutex_);
  take_unused();
  launch_full_buckets();
  const std::vector<bool> used_now = used_anywhere();
  for (const auto& bucket : buckets) bucket->finish_reduce();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (used_now[i]) used[i] = true;
    if (shares_gradients()) continue;
    const Bucket& bucket = *buckets[places_[i].bucket];
    at::Tensor& gradient = at::Tensor(parameters[i]).mutable_grad();
    gradient = used_now[i] ? bucket.gradient(bucket.plan().slots[places_[i].slot]) : at::Tensor();
  }
  if (units)
    for (const auto& bucket : buckets) bucket->release();
  std::fill(taken_.begin(), taken_.end(), false);
  for (size_t i = 0; i < buckets.size(); ++i) missing_[i] = buckets[i]->plan().slots.size();
  next_ = 0;
  running_ = false;
}

DataParallel::DataParallel(torch::nn::Module& model, std::shared_ptr<ProcessGroup> group,
                           const DataParallelOptions& options) {
  options.validate();
  if (!group) fail(kDataParallelWhere, "expected a process group, got none");
  state_ = std::make_unique<State>(model, std::move(group), options);
}

DataParallel::~DataParallel() = default;

ProcessGroup& DataParallel::group() const {
  return *state_->group;
}

const DataParallelOptions& DataParallel::options() const {
  return state_->options;
}

void DataParallel::broadcast_buffers() {
  for (const at::Tensor& buffer : state_->model.buffers()) broadcast_tensor(*state_->group, buffer);
}

at::Tensor DataParallel::forward(const std::vector<at::Tensor>& inputs) {
  if (!state_->units)
    fail("distributed.DataParallel.forward", "expected a stage of ZeRO that shares parameters, got zero ",
         enum_name(state_->options.zero));
  return state_->units->forward(inputs, state_->buckets);
}

void DataParallel::unshard() {
  if (!state_->units) return;
  for (const auto& bucket : state_->buckets) bucket->gather();
}

DataParallel::WholeParameters::WholeParameters(DataParallel& parallel) : parallel_(parallel) {
  parallel.unshard();
}

DataParallel::WholeParameters::~WholeParameters() {
  if (!parallel_.state_->units) return;
  for (const auto& bucket : parallel_.state_->buckets) {
    bucket->keep_share();
    bucket->release();
  }
}

DataParallel::NoSync::NoSync(DataParallel& parallel) : parallel_(parallel), before_(parallel.state_->sync) {
  parallel.state_->sync = false;
}

DataParallel::NoSync::~NoSync() {
  parallel_.state_->sync = before_;
}

}  // namespace ulp::distributed
