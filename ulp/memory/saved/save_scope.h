// Takes hold of the tensors that autograd saves for the backward pass. In C++ LibTorch has no such hook of
// its own: at::SavedTensorDefaultHooks holds Python objects. But each saved tensor asks the autograd engine
// for hooks, and the engine can be one of ours.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "ulp/base/export.h"

namespace ulp::memory {

/// Stands in the autograd graph in the place of a tensor that it saved, and dies with it.
class ULP_API SavedTensor {
 public:
  virtual ~SavedTensor();
  /// The tensor, or one of the same numbers. In the backward pass; it may be asked again (retain_graph).
  virtual at::Tensor unpack() = 0;
};

/// Decides what becomes of each saved tensor.
class ULP_API SaveHandler {
 public:
  virtual ~SaveHandler();
  /// A tensor that is about to be saved; parameters are among them. What is returned must not hold `tensor`
  /// itself, which may own the node that saves it: detach() it.
  virtual std::shared_ptr<SavedTensor> pack(const at::Tensor& tensor) = 0;
};

/// While it lives, `handler` gets what autograd saves on this thread; null: everything is saved as without a
/// scope. The innermost scope counts. The first one of a process replaces the autograd engine by one that
/// behaves alike; it throws ulp::Error where that is not LibTorch's own, as in a Python process.
class ULP_API SaveScope {
 public:
  explicit SaveScope(SaveHandler* handler);
  ~SaveScope();
  SaveScope(const SaveScope&) = delete;
  SaveScope& operator=(const SaveScope&) = delete;
  /// The handler of the innermost scope of this thread; null where there is none.
  static SaveHandler* active();

 private:
  SaveHandler* outer_;
};

}  // namespace ulp::memory
