// Copies on the host of parameters and gradients of another device, made and sent back beside the work;
// internal to the room.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>
#include <unordered_map>
#include <vector>

namespace ulp::amp {

/// One step: begin(), fetch() for each gradient, finish_fetching(); then, bucket by bucket, wait() and
/// send_back(); end(). With a device that has streams the copies run on one of their own, between pinned
/// memory and the device: while the host updates a bucket, the next ones arrive and those before go back. On
/// the CPU each copy is made where it is asked for.
class HostCopies {
 public:
  /// Gradients of this many bytes together are waited for together.
  explicit HostCopies(int64_t bucket_bytes) : bucket_bytes_(bucket_bytes) {}

  /// The host's copy of a parameter, brought up to date where someone else has written to the parameter.
  const at::Tensor& parameter(const at::Tensor& of);

  void begin(c10::Device device);
  /// The host's copy of a gradient, laid out as the parameter; its values are there after wait().
  at::Tensor fetch(const at::Tensor& parameter, const at::Tensor& gradient);
  /// The bucket of the gradient that was fetched last.
  size_t bucket() const { return bucket_; }
  void finish_fetching();

  void wait(size_t bucket);
  void wait_for_all();
  /// The parameter becomes its copy.
  void send_back(const at::Tensor& parameter);
  /// What runs on the device from here on comes after the copies.
  void end();

 private:
  struct Copy {
    at::Tensor parameter, gradient;
    int64_t version = -1;        ///< of the parameter when it was last the same
    const void* data = nullptr;  ///< where the parameter lay
  };
  at::Tensor on_host(const at::Tensor& like, c10::ScalarType type) const;
  void end_bucket();

  int64_t bucket_bytes_;
  std::unordered_map<const c10::TensorImpl*, Copy> copies_;
  std::optional<c10::Stream> stream_;
  std::vector<c10::Event> arrived_;  ///< one a bucket; none on the CPU
  std::vector<at::Tensor> sent_;
  size_t bucket_ = 0;
  int64_t bytes_ = 0;  ///< fetched in the bucket
};

}  // namespace ulp::amp
