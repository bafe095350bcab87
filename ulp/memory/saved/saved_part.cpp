#include "ulp/memory/saved/saved_part.h"

#include "ulp/base/error.h"

namespace ulp::memory {
namespace {

/// A value that a handler outside took.
class HandedSource final : public Source {
 public:
  explicit HandedSource(std::shared_ptr<SavedTensor> saved) : saved_(std::move(saved)) {}
  at::Tensor take(const void*) override { return saved_->unpack(); }

 private:
  std::shared_ptr<SavedTensor> saved_;
};

class Forgotten final : public SavedTensor {
 public:
  at::Tensor unpack() override {
    fail("memory.backward", "expected no backward pass through work that was done again, got one");
  }
};

}  // namespace

std::shared_ptr<Source> handed(std::shared_ptr<SavedTensor> saved) {
  return std::make_shared<HandedSource>(std::move(saved));
}

std::shared_ptr<SavedTensor> forgotten() {
  static const auto one = std::make_shared<Forgotten>();
  return one;
}

}  // namespace ulp::memory
