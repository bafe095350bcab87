// The operations by which processes that train together exchange tensors: one interface over every transport.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "ulp/base/enum_names.h"
#include "ulp/base/export.h"

namespace ulp::distributed {

/// How the tensors of all ranks become one.
enum class ReduceOp {
  sum,
  max,
  average  ///< each is divided by the number of ranks before the sum: fp16 has room for it
};

/// An operation that is under way. The tensors must be left alone until wait() has returned.
class ULP_API Work {
 public:
  /// The transport's part of an operation, which finishes it.
  class ULP_API Pending {
   public:
    virtual ~Pending();
    virtual void wait() = 0;
  };
  /// Nothing is under way.
  Work() = default;
  explicit Work(std::unique_ptr<Pending> pending) : pending_(std::move(pending)) {}

  /// Returns when the result is there. Throws ulp::Error when another process ended or did not take part
  /// within the group's time-out. Further calls return at once.
  void wait();

 private:
  std::unique_ptr<Pending> pending_;
};

/// Processes with the ranks 0 to size() - 1. All ranks call the same operations in the same order, with
/// tensors of the same type and size; send() and recv() concern two ranks alone. Tensors are dense in memory
/// (their order of dimensions is the caller's business: memory is exchanged as it lies) and on the device of
/// the transport; an operation throws ulp::Error for others. Every operation starts at once and returns what
/// is to be waited for.
class ULP_API ProcessGroup {
 public:
  virtual ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// "gloo", "nccl", or "none" for a single process.
  virtual const char* transport() const = 0;

  /// `tensor` becomes the result on every rank.
  [[nodiscard]] virtual Work all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::sum) = 0;
  /// Part r of the reduced `input`, cut into size() equal parts, becomes `output` of rank r.
  [[nodiscard]] virtual Work reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                            ReduceOp op = ReduceOp::sum) = 0;
  /// Part r of `output` becomes the `input` of rank r, which may be that very part.
  [[nodiscard]] virtual Work all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  /// `tensor` becomes that of rank `root`.
  [[nodiscard]] virtual Work broadcast(const at::Tensor& tensor, int root = 0) = 0;
  /// Tells messages between the same two ranks apart by their tags.
  [[nodiscard]] virtual Work send(const at::Tensor& tensor, int to, int tag = 0) = 0;
  [[nodiscard]] virtual Work recv(const at::Tensor& tensor, int from, int tag = 0) = 0;
  /// Returns when every rank has called it.
  virtual void barrier() = 0;

 protected:
  ProcessGroup(int rank, int size) : rank_(rank), size_(size) {}

 private:
  int rank_, size_;
};

/// One process, with nobody to talk to: results are what went in. send() and recv() throw ulp::Error.
ULP_API std::shared_ptr<ProcessGroup> single_process();

/// One number of every rank, reduced: on every rank the same bits.
ULP_API double all_reduce(ProcessGroup& group, double value, ReduceOp op = ReduceOp::sum);

}  // namespace ulp::distributed

template <>
struct ulp::EnumNames<ulp::distributed::ReduceOp> {
  using enum distributed::ReduceOp;
  static constexpr std::array<Word<distributed::ReduceOp>, 3> list = {
      {{sum, "sum"}, {max, "max"}, {average, "average"}}};
};
