// Every operation of a process group, by 1, 2 and 3 processes, in every type.
#include "ulp/distributed/process_group.h"

#include <torch/torch.h>

#include <csignal>

#include "error_of.h"
#include "in_ranks.h"

namespace {

using namespace ulp;
using distributed::ProcessGroup;
using distributed::ReduceOp;

at::Tensor filled(double value, at::ScalarType type = at::kFloat, int64_t size = 6) {
  return torch::full({size}, value, type);
}

void expect_values(const at::Tensor& tensor, const std::vector<double>& expected) {
  const at::Tensor values = tensor.to(at::kDouble);
  ASSERT_EQ(values.numel(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(values[static_cast<int64_t>(i)].item<double>(), expected[i]) << tensor;
}

void check_operations(ProcessGroup& group, at::ScalarType type) {
  const int n = group.size(), r = group.rank();
  const double sum = n * (n + 1) / 2.0;
  at::Tensor x = filled(r + 1, type);
  group.all_reduce(x).wait();
  expect_values(x, std::vector<double>(6, sum));
  x = filled(r + 1, type);
  group.all_reduce(x, ReduceOp::max).wait();
  expect_values(x, std::vector<double>(6, n));
  x = filled((r + 1) * n, type);
  group.all_reduce(x, ReduceOp::average).wait();
  expect_values(x, std::vector<double>(6, sum));

  at::Tensor parts = torch::arange(2 * n, at::TensorOptions(type));
  at::Tensor part = torch::empty({2}, type);
  group.reduce_scatter(part, parts).wait();
  expect_values(part, {n * 2.0 * r, n * (2.0 * r + 1)});
  at::Tensor whole = torch::zeros({n * 2}, type);
  group.all_gather(whole, filled(r + 1, type, 2)).wait();
  at::Tensor in_place = torch::zeros({n * 2}, type);
  in_place.narrow(0, 2 * r, 2).fill_(r + 1);
  group.all_gather(in_place, in_place.narrow(0, 2 * r, 2)).wait();
  for (int other = 0; other < n; ++other) {
    expect_values(whole.narrow(0, 2 * other, 2), {other + 1.0, other + 1.0});
    expect_values(in_place.narrow(0, 2 * other, 2), {other + 1.0, other + 1.0});
  }
  x = filled(r + 1, type);
  group.broadcast(x, n - 1).wait();
  expect_values(x, std::vector<double>(6, n));
}

void check_everything(ProcessGroup& group) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
    check_operations(group, type);
  EXPECT_EQ(distributed::all_reduce(group, group.rank() + 0.25, ReduceOp::max), group.size() - 0.75);
  group.barrier();
}

TEST(ProcessGroup, OfOneGivesBackWhatItGets) {
  const auto group = distributed::single_process();
  EXPECT_EQ(group->size(), 1);
  EXPECT_STREQ(group->transport(), "none");
  check_everything(*group);
  EXPECT_ERROR(group->send(filled(1), 0).wait(), "expected a group of several processes");
}

TEST_IN_RANKS(2, ProcessGroup, OfTwoComputesEveryOperation) {
  const auto group = test::rank_group();
  EXPECT_STREQ(group->transport(), "gloo");
  check_everything(*group);
}

TEST_IN_RANKS(3, ProcessGroup, OfThreeComputesEveryOperation) {
  const auto group = test::rank_group();
  EXPECT_EQ(group->size(), 3);
  check_everything(*group);
}

TEST_IN_RANKS(2, ProcessGroup, SendsAndReceivesWhileOtherWorkRuns) {
  const auto group = test::rank_group();
  const int other = 1 - group->rank();
  at::Tensor sum = filled(1, at::kFloat, 100000), got = filled(0), second = filled(0);
  distributed::Work reducing = group->all_reduce(sum);
  distributed::Work later = group->recv(second, other, /*tag=*/2), now = group->recv(got, other, /*tag=*/1);
  group->send(filled(group->rank() + 10), other, /*tag=*/1).wait();
  group->send(filled(group->rank() + 20), other, /*tag=*/2).wait();
  now.wait();
  later.wait();
  reducing.wait();
  EXPECT_EQ(got[0].item<float>(), other + 10);
  EXPECT_EQ(second[0].item<float>(), other + 20);
  EXPECT_EQ(sum.sum().item<float>(), 200000);
}

TEST_IN_RANKS(2, ProcessGroup, RefusesWhatItCannotExchange) {
  const auto group = test::rank_group();
  EXPECT_ERROR((void)group->all_reduce(at::Tensor()), "expected a tensor, got an undefined one");
  EXPECT_ERROR((void)group->all_reduce(torch::ones({4, 4}).narrow(1, 0, 2)), "dense in memory");
  EXPECT_ERROR((void)group->all_reduce(torch::ones({2}, at::kLong), ReduceOp::average), "for an average");
  EXPECT_ERROR((void)group->reduce_scatter(torch::ones({2}), torch::ones({3})),
               "expected 2 parts of one type");
  EXPECT_ERROR((void)group->broadcast(torch::ones({2}), 2), "expected a rank from 0 to 1, got 2");
  EXPECT_ERROR((void)group->send(torch::ones({2}), group->rank()), "expected another rank");
  group->barrier();
}

TEST_IN_RANKS(2, ProcessGroup, ABrokenPipeDoesNotEndTheProcess) {
  const auto group = test::rank_group();
  std::raise(SIGPIPE);
  group->barrier();
}

TEST_IN_RANKS(2, ProcessGroup, SaysThatAnotherProcessEnded) {
  const auto group = test::rank_group();
  if (group->rank() == 1) return;  // its connections close
  EXPECT_ERROR(
      {
        for (int i = 0; i < 100; ++i) group->all_reduce(filled(1)).wait();
      },
      "[distributed.all_reduce] rank 0 of 2 lost another process");
}

}  // namespace
