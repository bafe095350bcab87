#include "ulp/distributed/p2p.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "ulp/base/error.h"

namespace ulp::distributed {

namespace {

constexpr int kTags = 1 << 20;  // of one way: more letters than are ever under way
constexpr int64_t kMostDims = 8;
/// Defined, type, requires gradients, dimensions, sizes, strides.
constexpr int64_t kHeader = 4 + 2 * kMostDims;

at::Tensor header_of(const at::Tensor& tensor, const at::Tensor& dense) {
  const at::Tensor header = at::zeros({kHeader}, at::kLong);
  if (!tensor.defined()) return header;
  auto* numbers = header.mutable_data_ptr<int64_t>();
  if (tensor.dim() > kMostDims)
    fail("distributed.P2pChannel", "expected at most ", kMostDims, " dimensions, got ", tensor.dim());
  numbers[0] = 1;
  numbers[1] = static_cast<int64_t>(tensor.scalar_type());
  numbers[2] = tensor.requires_grad() ? 1 : 0;
  numbers[3] = tensor.dim();
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    numbers[4 + d] = dense.size(d);
    numbers[4 + kMostDims + d] = dense.stride(d);
  }
  return header;
}

/// Memory for the tensor that a header announces.
at::Tensor announced(const at::Tensor& header, at::Device device) {
  const auto* numbers = header.const_data_ptr<int64_t>();
  if (numbers[0] == 0) return {};
  const auto dims = static_cast<size_t>(numbers[3]);
  return at::empty_strided(at::IntArrayRef(numbers + 4, dims), at::IntArrayRef(numbers + 4 + kMostDims, dims),
                           at::TensorOptions(static_cast<at::ScalarType>(numbers[1])).device(device));
}

}  // namespace

P2pChannel::P2pChannel(ProcessGroup& group, int peer, int way, at::Device device)
    : group_(group), peer_(peer), first_tag_(way * kTags), device_(device) {}

int P2pChannel::next_tag() {
  return first_tag_ + used_tags_++ % kTags;
}

void P2pChannel::send(const std::vector<at::Tensor>& letter) {
  const at::NoGradGuard no_grad;
  std::vector<Work>& works = under_way_.emplace_back();
  for (const at::Tensor& tensor : letter) {
    at::Tensor dense = tensor.defined() ? tensor.detach() : tensor;
    if (dense.defined() && !dense.is_non_overlapping_and_dense()) dense = dense.contiguous();
    works.push_back(group_.send(header_of(tensor, dense).to(device_), peer_, next_tag()));
    if (dense.defined() && dense.numel() > 0) works.push_back(group_.send(dense, peer_, next_tag()));
  }
}

std::vector<at::Tensor> P2pChannel::receive(size_t tensors) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> letter;
  for (size_t i = 0; i < tensors; ++i) {
    at::Tensor header = at::empty({kHeader}, at::TensorOptions(at::kLong).device(device_));
    group_.recv(header, peer_, next_tag()).wait();
    header = header.cpu();
    at::Tensor tensor = announced(header, device_);
    if (tensor.defined() && tensor.numel() > 0) group_.recv(tensor, peer_, next_tag()).wait();
    if (header[2].item<int64_t>() != 0) tensor.requires_grad_(true);
    letter.push_back(std::move(tensor));
  }
  return letter;
}

void P2pChannel::settle(size_t under_way) {
  while (under_way_.size() > under_way) {
    for (Work& work : under_way_.front()) work.wait();
    under_way_.pop_front();
  }
}

}  // namespace ulp::distributed
