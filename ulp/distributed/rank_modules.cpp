#include "ulp/distributed/rank_modules.h"

#include <ATen/ATen.h>

#include <limits>
#include <mutex>

namespace ulp::distributed {

namespace {

/// The state of a generator while a rank draws numbers of its own.
class Aside {
 public:
  void leave(const at::Tensor& x, int rank) {
    at::Generator generator = at::globalContext().defaultGenerator(x.device());
    const at::Tensor drawn =
        at::randint(std::numeric_limits<int64_t>::max(), {1}, x.options().dtype(at::kLong));
    const auto seed = static_cast<uint64_t>(drawn.item<int64_t>());
    const std::lock_guard<std::mutex> lock(generator.mutex());
    state_ = generator.get_state();
    generator.set_current_seed(seed + static_cast<uint64_t>(rank));
  }
  void come_back(const at::Tensor& x) {
    at::Generator generator = at::globalContext().defaultGenerator(x.device());
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state_);
  }

 private:
  at::Tensor state_;
};

class Edge final : public libtorch::TensorModule {
 public:
  explicit Edge(std::function<void(const at::Tensor& x)> act) : act_(std::move(act)) {}
  at::Tensor forward(const at::Tensor& x) override {
    if (is_training()) act_(x);
    return x;
  }

 private:
  std::function<void(const at::Tensor& x)> act_;
};

}  // namespace

RankRandom rank_random(int rank) {
  const auto aside = std::make_shared<Aside>();
  return {std::make_shared<Edge>([aside, rank](const at::Tensor& x) { aside->leave(x, rank); }),
          std::make_shared<Edge>([aside](const at::Tensor& x) { aside->come_back(x); })};
}

}  // namespace ulp::distributed
