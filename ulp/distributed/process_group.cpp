#include "ulp/distributed/process_group.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "ulp/base/error.h"
#include "ulp/distributed/check_tensor.h"

namespace ulp::distributed {

namespace {

class SingleProcess final : public ProcessGroup {
 public:
  SingleProcess() : ProcessGroup(0, 1) {}
  const char* transport() const override { return "none"; }

  Work all_reduce(const at::Tensor& tensor, ReduceOp) override {
    check_tensor("distributed.all_reduce", tensor);
    return Work();
  }
  Work reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp) override {
    check_parts("distributed.reduce_scatter", output, input, size());
    return copy(output, input);
  }
  Work all_gather(const at::Tensor& output, const at::Tensor& input) override {
    check_parts("distributed.all_gather", input, output, size());
    return copy(output, input);
  }
  Work broadcast(const at::Tensor& tensor, int root) override {
    check_tensor("distributed.broadcast", tensor);
    check_rank("distributed.broadcast", root, size());
    return Work();
  }
  Work send(const at::Tensor&, int, int) override { alone("distributed.send"); }
  Work recv(const at::Tensor&, int, int) override { alone("distributed.recv"); }
  void barrier() override {}

 private:
  static Work copy(const at::Tensor& output, const at::Tensor& input) {
    const at::NoGradGuard no_grad;
    if (output.data_ptr() != input.data_ptr()) at::Tensor(output).view(-1).copy_(input.view(-1));
    return Work();
  }
  [[noreturn]] static void alone(const char* where) {
    fail(where, "expected a group of several processes, got one of a single process");
  }
};

}  // namespace

Work::Pending::~Pending() = default;

void Work::wait() {
  if (const auto pending = std::exchange(pending_, nullptr)) pending->wait();
}

ProcessGroup::~ProcessGroup() = default;

std::shared_ptr<ProcessGroup> single_process() {
  return std::make_shared<SingleProcess>();
}

double all_reduce(ProcessGroup& group, double value, ReduceOp op) {
  const at::Tensor one = at::full({1}, value, at::kDouble);
  group.all_reduce(one, op).wait();
  return one.item<double>();
}

void check_tensor(const char* where, const at::Tensor& tensor) {
  if (!tensor.defined()) fail(where, "expected a tensor, got an undefined one");
  if (tensor.layout() != c10::kStrided || !tensor.is_non_overlapping_and_dense()) {
    fail(where, "expected a tensor that is dense in memory, got one with sizes ", tensor.sizes(),
         " and strides ", tensor.strides());
  }
}

void check_parts(const char* where, const at::Tensor& part, const at::Tensor& whole, int size) {
  check_tensor(where, part);
  check_tensor(where, whole);
  if (!part.is_contiguous() || !whole.is_contiguous())
    fail(where, "expected contiguous tensors, got strides ", part.strides(), " and ", whole.strides());
  if (part.scalar_type() == whole.scalar_type() && part.numel() * size == whole.numel()) return;
  fail(where, "expected ", size, " parts of one type, got a part of ", part.numel(), ' ', part.dtype(),
       " and a whole of ", whole.numel(), ' ', whole.dtype());
}

void check_rank(const char* where, int rank, int size) {
  if (rank < 0 || rank >= size) fail(where, "expected a rank from 0 to ", size - 1, ", got ", rank);
}

}  // namespace ulp::distributed
