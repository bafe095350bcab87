// The nodes that a tensor parallel graph has between its layers; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <utility>

#include "ulp/libtorch/tensor_module.h"

namespace ulp::distributed {

/// A function with derivatives as a module of a graph.
class RankModule final : public libtorch::TensorModule {
 public:
  using Function = std::function<at::Tensor(const at::Tensor& x)>;
  explicit RankModule(Function function) : function_(std::move(function)) {}
  at::Tensor forward(const at::Tensor& x) override { return function_(x); }

 private:
  Function function_;
};

/// What stands before and behind a call that draws random numbers for a rank's part: each rank draws others, and all
/// have the same random state afterwards. In eval mode nothing is done.
struct RankRandom {
  std::shared_ptr<libtorch::TensorModule> before, behind;
};
RankRandom rank_random(int rank);

}  // namespace ulp::distributed
