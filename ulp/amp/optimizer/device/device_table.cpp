#include "ulp/amp/optimizer/device/device_table.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "ulp/amp/optimizer/device/update_kernels.cuh"
#include "ulp/amp/optimizer/fused_plan.h"
#include "ulp/kernels/training/moment_maps.h"
#include "ulp/libtorch/torch_parallel.h"

namespace ulp::amp {

namespace {

namespace device = ulp_device;
using kernels::MomentStore;
using kernels::OptimizerTensor;
using kernels::UpdateKind;
using kernels::UpdateStep;
using kernels::WeightStore;

static_assert(static_cast<int>(WeightStore::bf16_split) == device::kStoreSplit &&
              static_cast<int>(WeightStore::bf16_stochastic) == device::kStoreStochastic &&
              static_cast<int>(WeightStore::bf16_kahan) == device::kStoreKahan &&
              static_cast<int>(WeightStore::f16_master) == device::kStoreF16Master);
static_assert(static_cast<int>(MomentStore::bf16) == device::kMomentBf16 &&
              static_cast<int>(MomentStore::int8) == device::kMomentInt8 &&
              static_cast<int>(MomentStore::int4) == device::kMomentInt4);
static_assert(static_cast<int>(UpdateKind::sgd_momentum) == device::kSgdMomentum &&
              static_cast<int>(UpdateKind::adamw) == device::kAdamW);

int64_t parts(int64_t size, int64_t part) {
  return (size + part - 1) / part;
}

template <typename Map>
device::DecadeTables decade_tables() {
  const Map& map = kernels::MapTables<Map>::kMap;
  device::DecadeTables tables{};
  const auto copy = [](float* to, const float* from) { std::memcpy(to, from, 8 * sizeof(float)); };
  copy(tables.step, map.step);
  copy(tables.base, map.base);
  copy(tables.slope, map.slope);
  copy(tables.offset, map.offset);
  copy(tables.last, map.last);
  copy(tables.next, map.next);
  tables.one = map.one;
  tables.zero_code = Map::kZeroCode;
  tables.estimate = Map::kEstimate;
  return tables;
}

device::MomentTables moment_tables() {
  using kernels::SquareMap8;
  return {decade_tables<kernels::SignedMap8>(),
          decade_tables<kernels::SignedMap4>(),
          SquareMap8::kFine.drop,
          SquareMap8::kFine.less,
          SquareMap8::kCoarse.drop,
          SquareMap8::kCoarse.less};
}

device::StepNumbers step_numbers(const UpdateStep& step, int64_t count) {
  return {static_cast<int>(step.kind),
          step.nesterov,
          step.first_step,
          0,
          step.negative_lr,
          step.momentum,
          step.one_minus_dampening,
          step.weight_decay,
          step.beta1,
          step.one_minus_beta1,
          step.beta2,
          step.one_minus_beta2,
          step.decay,
          step.negative_step_size,
          step.sqrt_correction2,
          step.eps,
          count};
}

device::RuleNumbers rule_numbers(const UpdateRule& rule) {
  device::RuleNumbers numbers{};
  numbers.kind = static_cast<int>(update_numbers(rule, 1).kind);
  if (const auto* sgd = std::get_if<SgdRule>(&rule)) {
    numbers.nesterov = sgd->nesterov;
    numbers.lr = sgd->lr;
    numbers.momentum = sgd->momentum;
    numbers.dampening = sgd->dampening;
    numbers.weight_decay = sgd->weight_decay;
    return numbers;
  }
  const auto adam = [&](const auto& its) {
    numbers.lr = its.lr;
    numbers.beta1 = its.beta1;
    numbers.beta2 = its.beta2;
    numbers.eps = its.eps;
    numbers.weight_decay = its.weight_decay;
  };
  if (const auto* plain = std::get_if<AdamRule>(&rule)) adam(*plain);
  if (const auto* decoupled = std::get_if<AdamWRule>(&rule)) adam(*decoupled);
  return numbers;
}

template <typename T>
T* in_memory(const at::Tensor& bytes) {
  return static_cast<T*>(bytes.data_ptr());
}

}  // namespace

DeviceTable::DeviceTable(KernelLauncher& launcher, c10::Device device, std::vector<int64_t> sizes)
    : launcher_(launcher), device_(device), sizes_(std::move(sizes)) {
  for (const int64_t size : sizes_) {
    tiles_ += parts(size, device::kTile);
    chunks_ += parts(size, device::kSumChunk);
  }
  const auto count = static_cast<int64_t>(sizes_.size());
  const auto make = [&](int64_t elements, c10::ScalarType type) {
    return at::empty({std::max<int64_t>(elements, 1)}, at::TensorOptions(type).device(device_));
  };
  entries_ = make(count * static_cast<int64_t>(sizeof(device::ParameterEntry)), c10::kByte);
  numbers_ = make(count * static_cast<int64_t>(sizeof(device::StepNumbers)), c10::kByte);
  rules_ = make(count * static_cast<int64_t>(sizeof(device::RuleNumbers)), c10::kByte);
  tables_ = make(sizeof(device::MomentTables), c10::kByte);
  steps_ = make(count, c10::kLong);
  first_ = make(count, c10::kInt);
  sums_ = make(chunks_, c10::kDouble);
  total_ = make(2, c10::kDouble);
  const device::MomentTables tables = moment_tables();
  upload(&tables, sizeof(tables), tables_);
}

at::Tensor DeviceTable::upload(const void* data, size_t bytes, const at::Tensor& to) const {
  if (bytes == 0) return to;
  // From pinned memory the copy is in the stream's order and nobody waits; the allocator keeps the memory
  // until it is made.
  const auto size = static_cast<int64_t>(bytes);
  const at::Tensor staging =
      at::empty({size}, at::TensorOptions(c10::kByte).pinned_memory(device_.is_cuda()));
  std::memcpy(staging.mutable_data_ptr(), data, bytes);
  to.view(c10::kByte).slice(0, 0, size).copy_(staging, /*non_blocking=*/true);
  return to;
}

void DeviceTable::bind(std::span<const OptimizerTensor> tensors) {
  std::vector<device::ParameterEntry> entries;
  std::vector<device::StepNumbers> numbers;
  int64_t tile = 0, sum = 0;
  for (const OptimizerTensor& tensor : tensors) {
    device::ParameterEntry entry{};
    entry.gradient = tensor.gradient;
    entry.parameter = tensor.parameter;
    entry.master = tensor.master;
    entry.first = tensor.first;
    entry.second = tensor.second;
    entry.first_absmax = tensor.first_absmax;
    entry.second_absmax = tensor.second_absmax;
    entry.mask = tensor.mask;
    entry.size = tensor.size;
    entry.random_begin = tensor.random_begin;
    entry.first_tile = tile;
    entry.first_sum = sum;
    entry.seed = tensor.random.seed;
    entry.ordinal = static_cast<uint32_t>(tensor.random.stream);
    entry.gradient_type = tensor.gradient_type == DataType::f32    ? device::kF32
                          : tensor.gradient_type == DataType::bf16 ? device::kBf16
                                                                   : device::kF16;
    entry.store = static_cast<int>(tensor.store);
    entry.moments = static_cast<int>(tensor.moments);
    entries.push_back(entry);
    if (tensor.step != nullptr)
      numbers.push_back(step_numbers(*tensor.step, static_cast<int64_t>(tensor.random.stream >> 32)));
    tile += parts(tensor.size, device::kTile);
    sum += parts(tensor.size, device::kSumChunk);
  }
  upload(entries.data(), entries.size() * sizeof(entries[0]), entries_);
  upload(numbers.data(), numbers.size() * sizeof(numbers[0]), numbers_);
}

void DeviceTable::bind_rules(std::span<const UpdateRule> rules) {
  std::vector<device::RuleNumbers> numbers;
  for (const UpdateRule& rule : rules) numbers.push_back(rule_numbers(rule));
  upload(numbers.data(), numbers.size() * sizeof(numbers[0]), rules_);
}

void DeviceTable::bind_counts(std::span<const int64_t> counts, std::span<const int32_t> first) {
  upload(counts.data(), counts.size_bytes(), steps_);
  upload(first.data(), first.size_bytes(), first_);
}

at::Tensor DeviceTable::square_sum() {
  const device::SumArgs args{in_memory<device::ParameterEntry>(entries_), in_memory<double>(sums_), chunks_,
                             static_cast<int>(sizes_.size()), 0};
  const int64_t chunks_a_block = device::kThreads / device::kSumLanes;
  launcher_.launch("ulp_square_sums", parts(chunks_, chunks_a_block), &args, sizeof(args));
  const device::TotalArgs total{in_memory<double>(sums_), in_memory<double>(total_), chunks_};
  launcher_.launch("ulp_total", 1, &total, sizeof(total));
  return total_.select(0, 0);
}

at::Tensor DeviceTable::norm() {
  square_sum();
  return total_.select(0, 1);  // LibTorch's own roots need not be exact on processors
}

void DeviceTable::update(float inverse_scale, float clip, const float* control) {
  const device::UpdateArgs args{in_memory<device::ParameterEntry>(entries_),
                                in_memory<device::StepNumbers>(numbers_),
                                in_memory<device::MomentTables>(tables_),
                                control,
                                inverse_scale,
                                clip,
                                static_cast<int>(sizes_.size()),
                                0};
  launcher_.launch("ulp_update", tiles_, &args, sizeof(args));
}

void DeviceTable::update(float inverse_scale, float clip) {
  update(inverse_scale, clip, nullptr);
}

void DeviceTable::update(const at::Tensor& control) {
  update(1, 1, control.const_data_ptr<float>());
}

void DeviceTable::advance(const at::Tensor& control) {
  const device::NumbersArgs args{in_memory<device::RuleNumbers>(rules_),
                                 in_memory<device::StepNumbers>(numbers_),
                                 in_memory<device::i64>(steps_),
                                 in_memory<device::i32>(first_),
                                 control.const_data_ptr<float>(),
                                 static_cast<int>(sizes_.size()),
                                 0};
  launcher_.launch("ulp_numbers", parts(args.count, device::kThreads), &args, sizeof(args));
}

// ---- what a device computes beside what the host does ----------------------------------------------------

namespace {

/// The arrays of a small tensor, on the host or on a device.
struct SampleArrays {
  at::Tensor gradient, parameter, master, first, second, first_absmax, second_absmax;
  SampleArrays to(c10::Device device) const {
    SampleArrays moved;
    for (const auto member : kMembers) moved.*member = (this->*member).to(device, false, /*copy=*/true);
    return moved;
  }
  static constexpr at::Tensor SampleArrays::*kMembers[] = {
      &SampleArrays::gradient, &SampleArrays::parameter,    &SampleArrays::master,       &SampleArrays::first,
      &SampleArrays::second,   &SampleArrays::first_absmax, &SampleArrays::second_absmax};
};

/// A kind of tensor: an odd size, so that blocks are cut.
struct SampleKind {
  int store, moments, rule;
};
constexpr int64_t kSampleSize = 4401;  // more than a tile

SampleArrays sample_arrays(const SampleKind& kind, at::Generator generator) {
  const auto numbers = [&](double scale, c10::ScalarType type) {
    return (at::randn({kSampleSize}, generator, at::TensorOptions(c10::kFloat)) * scale).to(type);
  };
  const auto store = static_cast<WeightStore>(kind.store);
  const c10::ScalarType type = store == WeightStore::f32          ? c10::kFloat
                               : store == WeightStore::f16_master ? c10::kHalf
                                                                  : c10::kBFloat16;
  constexpr c10::ScalarType kGradients[] = {c10::kFloat, c10::kBFloat16, c10::kHalf};
  SampleArrays arrays;
  arrays.gradient = numbers(3, kGradients[(kind.store + kind.moments) % 3]);
  arrays.parameter = numbers(1, type);
  arrays.master = store == WeightStore::bf16_kahan ? numbers(1e-3, c10::kBFloat16)
                  : store == WeightStore::bf16_split
                      ? at::zeros({kSampleSize}, at::TensorOptions(c10::kShort))
                      : arrays.parameter.to(c10::kFloat, false, /*copy=*/true);
  const auto moments = static_cast<MomentStore>(kind.moments);
  const int64_t block = kernels::moment_block(moments);
  const auto moment = [&] {
    return at::zeros({kernels::moment_bytes(moments, kSampleSize)}, at::TensorOptions(c10::kByte));
  };
  const auto absmax = [&] {
    return at::zeros({block == 0 ? 1 : parts(kSampleSize, block)}, at::TensorOptions(c10::kFloat));
  };
  arrays.first = moment();
  arrays.second = moment();
  arrays.first_absmax = absmax();
  arrays.second_absmax = absmax();
  return arrays;
}

OptimizerTensor sample_tensor(const SampleKind& kind, SampleArrays& arrays, const UpdateStep& step,
                              int64_t count) {
  OptimizerTensor tensor;
  tensor.size = kSampleSize;
  tensor.gradient = arrays.gradient.data_ptr();
  tensor.gradient_type = arrays.gradient.scalar_type() == c10::kFloat      ? DataType::f32
                         : arrays.gradient.scalar_type() == c10::kBFloat16 ? DataType::bf16
                                                                           : DataType::f16;
  tensor.parameter = arrays.parameter.data_ptr();
  tensor.store = static_cast<WeightStore>(kind.store);
  const bool none = tensor.store == WeightStore::f32 || tensor.store == WeightStore::bf16_stochastic;
  tensor.master = none ? nullptr : arrays.master.data_ptr();
  tensor.moments = static_cast<MomentStore>(kind.moments);
  tensor.first = arrays.first.data_ptr();
  tensor.second = arrays.second.data_ptr();
  if (kernels::moment_block(tensor.moments) != 0) {
    tensor.first_absmax = arrays.first_absmax.data_ptr<float>();
    tensor.second_absmax = arrays.second_absmax.data_ptr<float>();
  }
  tensor.step = &step;
  tensor.random = {7, static_cast<uint64_t>(count) << 32 | static_cast<uint64_t>(kind.store)};
  return tensor;
}

}  // namespace

std::string kernel_difference(KernelLauncher& launcher, c10::Device device) {
  const at::NoGradGuard no_grad;
  const UpdateRule rules[] = {SgdRule{.lr = 0.1}, SgdRule{.lr = 0.1, .momentum = 0.9, .dampening = 0.2},
                              AdamRule{.lr = 0.01, .weight_decay = 0.1}, AdamWRule{.lr = 0.01}};
  auto generator = at::detail::createCPUGenerator(5);
  std::vector<SampleKind> kinds;
  std::vector<SampleArrays> host, there;
  for (int store = 0; store < kernels::kWeightStores; ++store) {
    for (int moments = 0; moments < 4; ++moments) {
      kinds.push_back({store, moments, (store + moments) % 4});
      kinds.push_back({store, moments, 3});
    }
  }
  for (const SampleKind& kind : kinds) {
    host.push_back(sample_arrays(kind, generator));
    there.push_back(host.back().to(device));
  }
  DeviceTable table(launcher, device, std::vector<int64_t>(kinds.size(), kSampleSize));
  for (int64_t count = 1; count <= 3; ++count) {
    std::vector<UpdateStep> steps;
    for (const SampleKind& kind : kinds) {
      steps.push_back(update_numbers(rules[kind.rule], count));
      steps.back().first_step = count == 1;
    }
    std::vector<OptimizerTensor> of_host, of_device;
    for (size_t i = 0; i < kinds.size(); ++i) {
      of_host.push_back(sample_tensor(kinds[i], host[i], steps[i], count));
      of_device.push_back(sample_tensor(kinds[i], there[i], steps[i], count));
    }
    table.bind(of_device);
    const double norm =
        kernels::gradient_square_sum(of_host, kernels::selected_isa(), libtorch::TorchParallel());
    if (table.square_sum().item<double>() != norm) return "the sum of the squares of gradients";
    kernels::update_parameters(of_host, 0.37F, 0.91F, kernels::selected_isa(), libtorch::TorchParallel());
    table.update(0.37F, 0.91F);
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    for (const auto member : SampleArrays::kMembers) {
      const at::Tensor &a = host[i].*member, b = (there[i].*member).cpu();
      if (std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0) continue;
      std::ostringstream text;
      text << "store " << kinds[i].store << ", moments " << kinds[i].moments << ", rule " << kinds[i].rule;
      return text.str();
    }
  }
  return {};
}

}  // namespace ulp::amp
