// Tensors of any sizes and types from one process to another; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <vector>

#include "ulp/distributed/process_group.h"

namespace ulp::distributed {

/// One way between two processes: the one sends, the other receives, in the same order. A letter is a list of
/// tensors; before each goes what the other end cannot know: type, sizes, strides, whether it requires
/// gradients. Undefined ones arrive undefined.
class P2pChannel {
 public:
  /// `way`: its number among the ways between the two, the same at both ends. Tensors are made on `device`.
  P2pChannel(ProcessGroup& group, int peer, int way, at::Device device);

  /// Starts; settle() makes sure that it has arrived. Tensors of more than 8 dimensions are refused.
  void send(const std::vector<at::Tensor>& letter);
  std::vector<at::Tensor> receive(size_t tensors);
  /// Waits for the oldest letters until at most so many are under way.
  void settle(size_t under_way = 0);
  size_t under_way() const { return under_way_.size(); }

 private:
  int next_tag();

  ProcessGroup& group_;
  int peer_, first_tag_, used_tags_ = 0;
  at::Device device_;
  std::deque<std::vector<Work>> under_way_;
};

}  // namespace ulp::distributed
