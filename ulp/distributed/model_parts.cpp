#include "ulp/distributed/model_parts.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "ulp/amp/optimizer/block_moments.h"
#include "ulp/base/error.h"
#include "ulp/distributed/named_tensors.h"
#include "ulp/distributed/p2p.h"
#include "ulp/distributed/shards.h"

namespace ulp::distributed {

namespace {

constexpr const char* kModelPartsWhere = "distributed.ModelParts";
constexpr int kWay = 2;  // 0 and 1 are a pipeline's own

using ByName = std::map<std::string, at::Tensor>;

ByName by_name(const torch::nn::Module& module) {
  ByName tensors;
  for (const auto& [name, tensor] : named_tensors(module)) tensors.emplace(name, tensor);
  return tensors;
}

const at::Tensor& find(const ByName& whole, const std::string& name) {
  const auto found = whole.find(name);
  if (found == whole.end()) fail(kModelPartsWhere, "expected a model with '", name, "', got one without");
  return found->second;
}

/// The tensors of a state: the same places on every rank, undefined where there is none.
template <typename Visit>
void for_each_tensor(amp::FusedParamState& state, const Visit& visit) {
  amp::for_each_moment(state, [&](const amp::MomentTensors& moment) {
    visit(moment.values);
    visit(moment.absmax);
  });
  visit(state.master);
}
constexpr size_t kStateLetter = 8;  // the count of steps, and the tensors

bool has_blocks(amp::FusedParamState& state) {
  bool blocks = false;
  amp::for_each_moment(state,
                       [&](const amp::MomentTensors& moment) { blocks = blocks || moment.absmax.defined(); });
  return blocks;
}

void refuse_blocks(const std::string& name) {
  fail(kModelPartsWhere, "expected moments in fp32 or bf16 of '", name,
       "', of which each process has a part, got some in blocks");
}

}  // namespace

ModelParts::ModelParts(std::shared_ptr<ProcessGroup> group, std::shared_ptr<graph::GraphModule> own,
                       std::vector<std::vector<std::string>> taken, std::vector<NamedSplit> splits)
    : group_(std::move(group)), own_(std::move(own)), taken_(std::move(taken)), splits_(std::move(splits)) {}

const Split* ModelParts::split_of(const std::string& name) const {
  const auto found = std::ranges::find(splits_, name, &NamedSplit::name);
  return found == splits_.end() ? nullptr : &found->split;
}

/// Rank 0 takes what each rank tells of each tensor that is gathered from it.
void ModelParts::collect(
    size_t tensors, FunctionRef<Message(const std::string& name)> tell,
    FunctionRef<void(const std::string& name, int rank, const Message& letter)> take) const {
  const auto own = by_name(*own_);
  const at::Device device = own.empty() ? at::Device(at::kCPU) : own.begin()->second.device();
  if (const int rank = group_->rank(); rank > 0) {
    P2pChannel to_root(*group_, 0, kWay, device);
    for (const std::string& name : taken_[static_cast<size_t>(rank)]) {
      to_root.send(tell(name));
      to_root.settle(1);
    }
    to_root.settle();
    return;
  }
  for (int rank = 0; rank < group_->size(); ++rank) {
    std::optional<P2pChannel> from;
    if (rank > 0) from.emplace(*group_, rank, kWay, device);
    for (const std::string& name : taken_[static_cast<size_t>(rank)])
      take(name, rank, from ? from->receive(tensors) : tell(name));
  }
}

void ModelParts::gather(torch::nn::Module* whole) const {
  check_gathers_on_root(kModelPartsWhere, *group_, whole);
  const at::NoGradGuard no_grad;
  const ByName own = by_name(*own_), targets = whole != nullptr ? by_name(*whole) : ByName();
  collect(
      1, [&](const std::string& name) { return Message{own.at(name)}; },
      [&](const std::string& name, int rank, const Message& letter) {
        const at::Tensor& target = find(targets, name);
        if (const Split* split = split_of(name))
          split->put_part(target, letter[0], rank, group_->size());
        else if (!target.is_same(letter[0]))
          target.copy_(letter[0]);
      });
}

void ModelParts::scatter(const torch::nn::Module& whole) const {
  const at::NoGradGuard no_grad;
  const ByName sources = by_name(whole);
  for (const auto& [name, tensor] : named_tensors(*own_)) {
    const at::Tensor& source = find(sources, name);
    if (const Split* split = split_of(name))
      tensor.copy_(split->part_of(source, group_->rank(), group_->size()));
    else if (!tensor.is_same(source))
      tensor.copy_(source);
  }
}

void ModelParts::gather(const amp::FusedOptimizer& own, torch::nn::Module* whole,
                        amp::FusedOptimizer* state) const {
  check_gathers_on_root(kModelPartsWhere, *group_, whole);
  const at::NoGradGuard no_grad;
  const ByName mine = by_name(*own_), targets = whole != nullptr ? by_name(*whole) : ByName();
  const auto tell = [&](const std::string& name) {
    const amp::FusedParamState* found = state_of(own, mine.at(name));
    if (found == nullptr) return Message(kStateLetter);
    amp::FusedParamState its = *found;
    if (split_of(name) != nullptr && has_blocks(its)) refuse_blocks(name);
    Message letter = {at::full({1}, its.step, at::kLong)};
    for_each_tensor(its, [&](const at::Tensor& tensor) { letter.push_back(tensor); });
    return letter;
  };
  collect(kStateLetter, tell, [&](const std::string& name, int rank, const Message& letter) {
    if (!letter[0].defined()) return;
    const at::Tensor& parameter = find(targets, name);
    const Split* split = split_of(name);
    amp::FusedParamState& its = made_state(*state, parameter);
    its.step = letter[0].item<int64_t>();
    size_t at = 1;
    for_each_tensor(its, [&](at::Tensor& tensor) {
      const at::Tensor& got = letter[at++];
      if (!got.defined() || split == nullptr) {
        tensor = got;
        return;
      }
      if (!tensor.defined())
        tensor = at::empty_like(parameter, parameter.options().dtype(got.scalar_type()).requires_grad(false));
      split->put_part(tensor, got, rank, group_->size());
    });
    if (has_blocks(its)) its.memory_order = amp::memory_order(parameter);
  });
}

void ModelParts::scatter(const torch::nn::Module& whole, const amp::FusedOptimizer& state,
                         amp::FusedOptimizer& own) const {
  const at::NoGradGuard no_grad;
  const ByName sources = by_name(whole);
  own.state().clear();
  own.set_seed(state.seed());
  for (const auto& one : own_->named_parameters()) {
    const amp::FusedParamState* found = state_of(state, find(sources, one.key()));
    if (found == nullptr) continue;
    amp::FusedParamState& its = made_state(own, one.value());
    its = *found;
    const Split* split = split_of(one.key());
    if (split == nullptr) continue;
    if (has_blocks(its)) refuse_blocks(one.key());
    for_each_tensor(its, [&](at::Tensor& tensor) {
      if (tensor.defined()) tensor = split->part_of(tensor, group_->rank(), group_->size());
    });
  }
  own.settle_state();
}

}  // namespace ulp::distributed
