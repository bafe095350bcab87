#include "ulp/memory/checkpoint/run.h"

#include <algorithm>

namespace ulp::memory {

Run::Run(std::shared_ptr<const Layout> the_layout, const graph::Program::Frame& frame)
    : layout(std::move(the_layout)),
      sizes(frame.sizes),
      training(frame.training),
      autocast(AutocastState::current()),
      requires_grad(layout->made_by.size(), 0),
      outer_(SaveScope::active()),
      held_(layout->made_by.size()) {
  if (!layout->packer) return;
  for (const auto& [name, attribute] : layout->graph->attributes()) {
    if (attribute.tensor.has_storage()) parameters_.insert(attribute.tensor.storage().unsafeGetStorageImpl());
  }
}

std::shared_ptr<Source> Run::hold(int32_t slot, const at::Tensor& tensor) {
  std::weak_ptr<Source>& known = held_[static_cast<size_t>(slot)];
  if (std::shared_ptr<Source> source = known.lock()) return source;
  requires_grad[static_cast<size_t>(slot)] = tensor.requires_grad();
  if (outer_) {
    auto source = handed(outer_->pack(tensor));
    known = source;
    return source;
  }
  auto source = std::make_shared<HeldSource>(tensor);
  known = source;
  const bool is_parameter =
      tensor.has_storage() && parameters_.contains(tensor.storage().unsafeGetStorageImpl());
  if (layout->packer && !is_parameter) waiting_.push_back({source, slot});
  return source;
}

std::shared_ptr<Source> Run::hold_inner(size_t step, const at::Tensor& tensor) {
  if (outer_) return handed(outer_->pack(tensor));
  auto source = std::make_shared<HeldSource>(tensor);
  if (!layout->packer) return source;
  Packer& packer = *layout->packer;
  const bool two_values = tensor.scalar_type() == at::kBool || layout->random[step];
  if (packer.options().masks && two_values && tensor.is_cpu() && tensor.is_non_overlapping_and_dense()) {
    if (auto codes = encode_two_values(tensor)) {
      pack(*source, Packed::of(tensor, std::move(*codes), packer));
      return source;
    }
  }
  pack(*source, Packed::of(tensor, packer.options().format, packer));
  return source;
}

void Run::pack(HeldSource& source, std::shared_ptr<Packed> packed) {
  if (!packed) return;
  if (!batch_) batch_ = std::make_shared<PackedBatch>();
  batch_->members.push_back(packed);
  source.pack(std::move(packed), batch_);
}

void Run::note_mask(std::weak_ptr<SavedPart> part, int32_t slot, const MaskRule& rule) {
  if (!outer_) masks_.push_back({std::move(part), slot, rule});
}

/// Whether all who hold the value are parts with a rule.
bool Run::asks_for_range_only(const Mask& mask) const {
  const auto source = held_[static_cast<size_t>(mask.slot)].lock();
  if (!source) return false;
  const auto parts = std::ranges::count_if(
      masks_, [&](const Mask& other) { return other.slot == mask.slot && !other.part.expired(); });
  return source.use_count() == parts + 1;
}

void Run::settle_masks(size_t step) {
  for (const Mask& mask : masks_) {
    const auto part = mask.part.lock();
    if (!part || !is_settled(mask.slot, step) || !asks_for_range_only(mask)) continue;
    const auto held = std::dynamic_pointer_cast<HeldSource>(held_[static_cast<size_t>(mask.slot)].lock());
    const at::Tensor tensor = held->tensor();
    if (!tensor.defined() || !tensor.is_cpu() || !tensor.is_non_overlapping_and_dense() ||
        !part->is_whole(tensor))
      continue;
    auto bits = std::make_shared<HeldSource>(tensor);
    pack(*bits, Packed::of(tensor, encode_range(tensor, mask.rule.low, mask.rule.high, mask.rule.inside),
                           *layout->packer));
    part->set(bits);
  }
  std::erase_if(masks_, [&](const Mask& mask) { return is_settled(mask.slot, step); });
}

void Run::settle(size_t step) {
  if (!layout->packer) return;
  settle_masks(step);
  for (const Waiting& waiting : waiting_) {
    const auto source = waiting.source.lock();
    if (source && is_settled(waiting.slot, step))
      pack(*source,
           Packed::of(source->tensor(), layout->formats[static_cast<size_t>(waiting.slot)], *layout->packer));
  }
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    return waiting.source.expired() || is_settled(waiting.slot, step);
  });
  if (!batch_ || batch_->members.empty()) return;
  auto next = std::make_shared<PackedBatch>();
  next->earlier = batch_;
  batch_ = std::move(next);
}

}  // namespace ulp::memory
