#include "ulp/distributed/same_model.h"

#include <ATen/Functions.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "ulp/base/error.h"

namespace ulp::distributed {

namespace {

/// One line a tensor: "fc.weight float (10, 4) trained".
std::string listing_of(const torch::nn::Module& model) {
  std::ostringstream text;
  for (const auto& parameter : model.named_parameters()) {
    text << parameter.key() << ' ' << parameter.value().dtype() << ' ' << parameter.value().sizes() << ' '
         << parameter.value().strides() << (parameter.value().requires_grad() ? " trained\n" : " frozen\n");
  }
  for (const auto& buffer : model.named_buffers())
    text << buffer.key() << ' ' << buffer.value().dtype() << ' ' << buffer.value().sizes() << " buffer\n";
  return text.str();
}

std::string line_at(const std::string& text, size_t at) {
  if (at >= text.size()) return "nothing more";
  const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
  return "'" + text.substr(begin, text.find('\n', begin) - begin) + "'";
}

/// The text of rank 0.
std::string from_root(ProcessGroup& group, const std::string& text, const at::Device& device) {
  at::Tensor length =
      at::full({1}, static_cast<int64_t>(text.size()), at::TensorOptions(at::kLong).device(device));
  group.broadcast(length).wait();
  at::Tensor bytes = at::zeros({length.item<int64_t>()}, at::kByte);
  const size_t most = std::min(text.size(), static_cast<size_t>(bytes.numel()));
  std::copy_n(text.begin(), most, bytes.mutable_data_ptr<uint8_t>());
  bytes = bytes.to(device);
  group.broadcast(bytes).wait();
  bytes = bytes.to(at::kCPU);
  return {bytes.const_data_ptr<uint8_t>(), bytes.const_data_ptr<uint8_t>() + bytes.numel()};
}

}  // namespace

void check_same_model(ProcessGroup& group, const torch::nn::Module& model) {
  const std::string own = listing_of(model);
  const auto parameters = model.parameters();
  const at::Device device = parameters.empty() ? at::Device(at::kCPU) : parameters[0].device();
  const std::string root = from_root(group, own, device);
  const bool same = own == root;
  const at::Tensor differs = at::full({1}, same ? 0.0 : 1.0, at::TensorOptions(at::kDouble).device(device));
  group.all_reduce(differs, ReduceOp::max).wait();
  if (differs.item<double>() == 0) return;
  constexpr const char* kWhere = "distributed.DataParallel";
  if (same) fail(kWhere, "expected the same model on every rank, got another one than rank 0's on some rank");
  const auto [mine, its] = std::mismatch(own.begin(), own.end(), root.begin(), root.end());
  fail(kWhere, "expected the model of rank 0, whose list goes on with ",
       line_at(root, static_cast<size_t>(its - root.begin())), ", got ",
       line_at(own, static_cast<size_t>(mine - own.begin())), " on rank ", group.rank());
}

void broadcast_tensor(ProcessGroup& group, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor whole = tensor.detach();
  const bool dense = whole.is_non_overlapping_and_dense();
  const bool bytes = whole.scalar_type() == at::kBool;
  // The order of dimensions in memory may be another one on rank 0.
  const at::Tensor sent =
      dense && whole.is_contiguous() && !bytes ? whole : (bytes ? whole.to(at::kByte) : whole).contiguous();
  group.broadcast(sent).wait();
  if (!sent.is_same(whole)) whole.copy_(sent);
}

void broadcast_state(ProcessGroup& group, const torch::nn::Module& model) {
  for (const at::Tensor& parameter : model.parameters()) broadcast_tensor(group, parameter);
  for (const at::Tensor& buffer : model.buffers()) broadcast_tensor(group, buffer);
}

}  // namespace ulp::distributed
