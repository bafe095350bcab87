#include "ulp/memory/checkpoint/function.h"

#include <ATen/core/grad_mode.h>

#include <memory>

#include "ulp/memory/saved/modes.h"
#include "ulp/memory/saved/saved_part.h"

namespace ulp::memory {
namespace {

/// One run of a function: what it saved, by number.
class FunctionRecord final : public Replayable,
                             public SaveHandler,
                             public std::enable_shared_from_this<FunctionRecord> {
 public:
  FunctionRecord(TensorFunction function, const std::vector<at::Tensor>& inputs)
      : function_(std::move(function)),
        autocast_(AutocastState::current()),
        random_(RandomState::current(inputs)) {
    for (const at::Tensor& input : inputs) {
      sources_.push_back(input.defined() ? std::make_unique<SourceUse>(hold(input)) : nullptr);
      requires_grad_.push_back(input.defined() && input.requires_grad());
    }
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) {
    seen_inputs_ = inputs;
    const SaveScope scope(this);
    std::vector<at::Tensor> results = function_(inputs);
    seen_inputs_.clear();
    return results;
  }

  std::shared_ptr<SavedTensor> pack(const at::Tensor& tensor) override {
    saved_.emplace_back();
    if (tensor.is_leaf() && tensor.requires_grad())
      return std::make_shared<SavedPart>(std::make_shared<HeldSource>(tensor));
    for (size_t i = 0; i < seen_inputs_.size(); ++i) {
      if (auto where = find_in(tensor, seen_inputs_[i]))
        return std::make_shared<SavedPart>(sources_[i]->source(), std::move(where));
    }
    auto source = std::make_shared<DerivedSource>(shared_from_this(), tensor);
    saved_.back() = source;
    return std::make_shared<SavedPart>(std::move(source));
  }

  void replay() override {
    size_t wanted = 0;
    for (size_t i = 0; i < saved_.size(); ++i) {
      if (waits(i)) wanted = i + 1;
    }
    std::vector<at::Tensor> inputs;
    for (size_t i = 0; i < sources_.size(); ++i)
      inputs.push_back(sources_[i] ? sources_[i]->take().detach().set_requires_grad(requires_grad_[i])
                                   : at::Tensor());
    const AutocastGuard autocast(autocast_);
    const at::AutoGradMode with_grad(true);
    const RandomGuard present(random_.now());
    random_.restore();
    Again again(*this, wanted);
    const SaveScope scope(&again);
    try {
      function_(inputs);
    } catch (const EnoughSaved&) {
    }
  }

 private:
  /// In a function inside another one, the outer one decides what becomes of the inputs.
  static std::shared_ptr<Source> hold(const at::Tensor& input) {
    SaveHandler* outer = SaveScope::active();
    return outer ? handed(outer->pack(input)) : std::make_shared<HeldSource>(input);
  }

  /// Gives what the second run saves to those who wait.
  class Again final : public SaveHandler {
   public:
    Again(FunctionRecord& record, size_t wanted) : record_(record), wanted_(wanted) {}
    std::shared_ptr<SavedTensor> pack(const at::Tensor& tensor) override {
      const size_t number = count_++;
      std::shared_ptr<SavedTensor> handed = forgotten();
      if (number < wanted_ && record_.waits(number)) {
        record_.saved_[number].lock()->fill(tensor);
      }
      if (count_ >= wanted_) throw EnoughSaved{};
      return handed;
    }

   private:
    FunctionRecord& record_;
    size_t wanted_, count_ = 0;
  };

  bool waits(size_t number) const {
    const auto source = saved_[number].lock();
    return source && !source->filled();
  }

  TensorFunction function_;
  AutocastState autocast_;
  RandomState random_;
  std::vector<std::unique_ptr<SourceUse>> sources_;  ///< of the inputs
  std::vector<char> requires_grad_;
  std::vector<at::Tensor> seen_inputs_;  ///< while it runs
  std::vector<std::weak_ptr<DerivedSource>> saved_;
};

}  // namespace

std::vector<at::Tensor> checkpoint(const TensorFunction& function, const std::vector<at::Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return function(inputs);
  return std::make_shared<FunctionRecord>(function, inputs)->run(inputs);
}

}  // namespace ulp::memory
