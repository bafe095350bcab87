// Where the state of an optimizer lies: in memory, or in files that are mapped into it; internal to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace ulp::amp {

/// The function or class that errors name.
inline constexpr const char* kFusedOptimizerWhere = "amp.FusedOptimizer";

/// Makes tensors on the host, or on a device.
class StateMemory {
 public:
  /// An empty folder: in memory. Otherwise tensors of at least kLeastFile bytes lie in files of that folder,
  /// which have no name and go when the last tensor goes, or the process: the kernel writes out what is not
  /// in use.
  explicit StateMemory(std::string folder = {}, c10::Device device = c10::kCPU)
      : folder_(std::move(folder)), device_(device) {}

  static constexpr int64_t kLeastFile = 1 << 16;

  /// Zeros with the sizes and strides of `like`. Throws Error where the folder takes no file or has no room.
  at::Tensor zeros(const at::Tensor& like, c10::ScalarType type) const;
  /// Zeros of one dimension.
  at::Tensor zeros(int64_t size, c10::ScalarType type) const;
  /// Moves a tensor to the device, or from memory to where it belongs; others stay.
  void move(at::Tensor& tensor) const;

 private:
  bool is_for(int64_t elements, c10::ScalarType type) const;  ///< whether they lie in a file
  at::Tensor in_file(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType type) const;
  std::string folder_;
  c10::Device device_;
};

}  // namespace ulp::amp
