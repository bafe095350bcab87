// What it costs processes to exchange tensors: ulp launch -n 2 build/release/bin/distributed_bench
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "ulp/distributed/init.h"

namespace {

using ulp::distributed::ProcessGroup;

constexpr int kRounds = 15;

/// Median milliseconds of the operation, which all processes begin together.
double median_ms(ProcessGroup& group, const std::function<void()>& operation) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int round = 0; round <= kRounds; ++round) {
    group.barrier();
    const auto begin = Clock::now();
    operation();
    const std::chrono::duration<double, std::milli> time = Clock::now() - begin;
    if (round > 0) times.push_back(time.count());  // the first one warms up
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

void measure(ProcessGroup& group, int64_t bytes, at::ScalarType type) {
  const int64_t parts = group.size();
  const int64_t count = bytes / static_cast<int64_t>(c10::elementSize(type)) / parts * parts;
  const at::Tensor whole = torch::ones({count}, type), part = torch::ones({count / parts}, type);
  const double all_reduce = median_ms(group, [&] { group.all_reduce(whole).wait(); });
  const double reduce_scatter = median_ms(group, [&] { group.reduce_scatter(part, whole).wait(); });
  const double all_gather = median_ms(group, [&] { group.all_gather(whole, part).wait(); });
  const double broadcast = median_ms(group, [&] { group.broadcast(whole).wait(); });
  if (group.rank() != 0) return;
  std::printf(
      "%9lld bytes %-9s all_reduce %8.2f ms  reduce_scatter %8.2f ms  all_gather %8.2f ms  broadcast %8.2f "
      "ms\n",
      static_cast<long long>(bytes), c10::toString(type), all_reduce, reduce_scatter, all_gather, broadcast);
}

}  // namespace

int main() {
  const auto group = ulp::distributed::init_process_group();
  for (const int64_t bytes : {int64_t{64}, int64_t{1} << 20, int64_t{25} << 20}) {
    measure(*group, bytes, at::kFloat);
    measure(*group, bytes, at::kBFloat16);
  }
}
