#include "ulp/distributed/backend_group.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/distributed/check_tensor.h"
#include "ulp/distributed/first_line.h"

namespace ulp::distributed {

namespace {

using TensorVector = std::vector<at::Tensor>;

/// Which operation of which rank it was, for messages.
struct Operation {
  const char* where;
  int rank, size;
  int peer = -1;  ///< of operations that concern two ranks alone

  [[noreturn]] void failed(const std::exception& error) const {
    const std::string other = peer < 0 ? "another process" : "rank " + std::to_string(peer);
    fail(where, "rank ", rank, " of ", size, " lost ", other, " or its time ran out: ", first_line(error));
  }
};

class BackendWork final : public Work::Pending {
 public:
  BackendWork(Operation operation, c10::intrusive_ptr<c10d::Work> work, TensorVector owners)
      : operation_(operation), work_(std::move(work)), owners_(std::move(owners)) {}
  /// Work that nobody waited for may still use the memory: it is never freed then.
  ~BackendWork() override {
    if (work_) new TensorVector(std::move(owners_));
  }

  void wait() override {
    try {
      work_->wait();
      work_.reset();
    } catch (const std::exception& error) {
      operation_.failed(error);
    }
  }

 private:
  Operation operation_;
  c10::intrusive_ptr<c10d::Work> work_;
  TensorVector owners_;  // of the memory that the work uses
};

/// The memory of a dense tensor as it lies. On the CPU it is lent: the backend's threads let go of a tensor a moment
/// after they have told that they are done, and memory should be freed by those who own it, when they mean to.
at::Tensor lent(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (!tensor.device().is_cpu()) return tensor.detach().as_strided({tensor.numel()}, {1});
  return at::from_blob(tensor.data_ptr(), {tensor.numel()}, at::TensorOptions(tensor.scalar_type()));
}

c10d::ReduceOp backend_op(ReduceOp op) {
  return op == ReduceOp::max ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
}

class BackendGroup final : public ProcessGroup {
 public:
  BackendGroup(c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Store> store,
               const char* transport, std::chrono::milliseconds timeout)
      : ProcessGroup(backend->getRank(), backend->getSize()),
        store_(std::move(store)),
        backend_(std::move(backend)),
        transport_(transport),
        timeout_(timeout) {}

  const char* transport() const override { return transport_; }

  Work all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    constexpr const char* kWhere = "distributed.all_reduce";
    check_tensor(kWhere, tensor);
    if (op == ReduceOp::average) divide(kWhere, tensor);
    c10d::AllreduceOptions options;
    options.reduceOp = backend_op(op);
    options.timeout = timeout_;
    TensorVector tensors = {lent(tensor)};
    return start(kWhere, {tensor}, [&] { return backend_->allreduce(tensors, options); });
  }

  Work reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    constexpr const char* kWhere = "distributed.reduce_scatter";
    check_parts(kWhere, output, input, size());
    if (op == ReduceOp::average) divide(kWhere, input);
    c10d::ReduceScatterOptions options;
    options.reduceOp = backend_op(op);
    options.timeout = timeout_;
    TensorVector tensors = {lent(output), lent(input)};
    return start(kWhere, {output, input},
                 [&] { return backend_->_reduce_scatter_base(tensors[0], tensors[1], options); });
  }

  Work all_gather(const at::Tensor& output, const at::Tensor& input) override {
    constexpr const char* kWhere = "distributed.all_gather";
    check_parts(kWhere, input, output, size());
    c10d::AllgatherOptions options;
    options.timeout = timeout_;
    TensorVector tensors = {lent(output), lent(input)};
    return start(kWhere, {output, input},
                 [&] { return backend_->_allgather_base(tensors[0], tensors[1], options); });
  }

  Work broadcast(const at::Tensor& tensor, int root) override {
    constexpr const char* kWhere = "distributed.broadcast";
    check_tensor(kWhere, tensor);
    check_rank(kWhere, root, size());
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = timeout_;
    TensorVector tensors = {lent(tensor)};
    return start(kWhere, {tensor}, [&] { return backend_->broadcast(tensors, options); });
  }

  Work send(const at::Tensor& tensor, int to, int tag) override {
    constexpr const char* kWhere = "distributed.send";
    check_peer(kWhere, tensor, to);
    TensorVector tensors = {lent(tensor)};
    return start(
        kWhere, {tensor}, [&] { return backend_->send(tensors, to, tag); }, to);
  }

  Work recv(const at::Tensor& tensor, int from, int tag) override {
    constexpr const char* kWhere = "distributed.recv";
    check_peer(kWhere, tensor, from);
    TensorVector tensors = {lent(tensor)};
    return start(
        kWhere, {tensor}, [&] { return backend_->recv(tensors, from, tag); }, from);
  }

  void barrier() override {
    c10d::BarrierOptions options;
    options.timeout = timeout_;
    start("distributed.barrier", {}, [&] { return backend_->barrier(options); }).wait();
  }

 private:
  void divide(const char* where, const at::Tensor& tensor) const {
    if (!tensor.is_floating_point())
      fail(where, "expected floating-point numbers for an average, got ", tensor.dtype());
    lent(tensor).div_(size());
  }

  void check_peer(const char* where, const at::Tensor& tensor, int peer) const {
    check_tensor(where, tensor);
    check_rank(where, peer, size());
    if (peer == rank()) fail(where, "expected another rank than the own one, got ", peer);
  }

  template <typename Start>
  Work start(const char* where, const TensorVector& owners, Start&& start, int peer = -1) {
    const Operation operation{where, rank(), size(), peer};
    try {
      return Work(std::make_unique<BackendWork>(operation, start(), owners));
    } catch (const std::exception& error) {
      operation.failed(error);
    }
  }

  c10::intrusive_ptr<c10d::Store> store_;  // of the backend
  c10::intrusive_ptr<c10d::Backend> backend_;
  const char* transport_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

std::shared_ptr<ProcessGroup> group_of(c10::intrusive_ptr<c10d::Backend> backend,
                                       c10::intrusive_ptr<c10d::Store> store, const char* transport,
                                       std::chrono::milliseconds timeout) {
  return std::make_shared<BackendGroup>(std::move(backend), std::move(store), transport, timeout);
}

}  // namespace ulp::distributed
