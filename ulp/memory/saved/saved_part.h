// What stands in the autograd graph for a part of a source.
#pragma once

#include <memory>
#include <optional>

#include "ulp/memory/saved/geometry.h"
#include "ulp/memory/saved/save_scope.h"
#include "ulp/memory/saved/source.h"

namespace ulp::memory {

/// A source, or a view of it.
class SavedPart final : public SavedTensor {
 public:
  SavedPart() = default;
  explicit SavedPart(std::shared_ptr<Source> source, std::optional<Geometry> geometry = std::nullopt) {
    set(std::move(source), std::move(geometry));
  }
  /// For one that did not know its source when the tensor was saved.
  void set(std::shared_ptr<Source> source, std::optional<Geometry> geometry = std::nullopt) {
    use_ = std::make_unique<SourceUse>(std::move(source));
    geometry_ = std::move(geometry);
  }
  bool is_set() const { return use_ != nullptr; }
  /// Whether it stands for all of a tensor of this form.
  bool is_whole(const at::Tensor& tensor) const {
    return !geometry_ || (geometry_->distance == 0 && tensor.sizes() == at::IntArrayRef(geometry_->sizes) &&
                          tensor.strides() == at::IntArrayRef(geometry_->strides));
  }
  at::Tensor unpack() override {
    const at::Tensor whole = use_->take();
    return geometry_ ? geometry_->of(whole) : whole;
  }

 private:
  std::unique_ptr<SourceUse> use_;
  std::optional<Geometry> geometry_;
};

/// What a handler packed, as a source.
std::shared_ptr<Source> handed(std::shared_ptr<SavedTensor> saved);

/// For what a replay saves: nobody goes back through its autograd graph.
std::shared_ptr<SavedTensor> forgotten();

/// Thrown in a replay where all is saved that was asked for.
struct EnoughSaved {};

}  // namespace ulp::memory
