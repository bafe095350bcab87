#include "ulp/amp/threads/adaptive_threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

constexpr const char* kThreadsWhere = "amp.AdaptiveThreads";
constexpr int kFreeLooks = 2;         // in a row, before the count rises
constexpr double kFreeBeyond = 0.75;  // of a processor, before the count rises
constexpr double kFreeForOneMore = 0.25;

thread_local AdaptiveThreads* innermost_threads = nullptr;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

AdaptiveThreads::AdaptiveThreads(AdaptiveThreadsOptions options)
    : options_(std::move(options)),
      outer_(innermost_threads),
      before_(at::get_num_threads()),
      threads_(before_),
      last_look_(steady_seconds()) {
  if (options_.most < 0) fail(kThreadsWhere, "expected 0 or more threads, got ", options_.most);
  if (!std::isfinite(options_.window_seconds) || options_.window_seconds < 0)
    fail(kThreadsWhere, "expected a window of 0 or more seconds, got ", options_.window_seconds);
  if (!options_.probe) options_.probe = read_cpu_usage;
  if (options_.most == 0) options_.most = before_;
  begin_ = options_.probe();
  set(options_.most);
  innermost_threads = this;
}

AdaptiveThreads::~AdaptiveThreads() {
  innermost_threads = outer_;
  set(before_);
}

void AdaptiveThreads::step() {
  const double now = steady_seconds();
  if (now - last_look_ < options_.window_seconds) return;
  last_look_ = now;
  const CpuUsage usage = options_.probe();
  const std::optional<double> taken = share_of_others(begin_, usage);
  if (taken) {
    thread_seconds_ += threads_ * (usage.wall - begin_.wall);
    add_span(total_, begin_, usage);
    const double usable =
        usage.group ? std::min<double>(usage.processors, usage.group->limit) : usage.processors;
    follow(usable * (1 - *taken));
  }
  begin_ = usage;
}

void AdaptiveThreads::follow(double free) {
  const int fitting = std::clamp(static_cast<int>(std::lround(free)), 1, options_.most);
  if (fitting < threads_) {
    set(fitting);
  } else if (threads_ < options_.most && free >= threads_ + kFreeBeyond) {
    if (++free_looks_ >= kFreeLooks)
      set(std::min(options_.most, static_cast<int>(std::floor(free + kFreeForOneMore))));
    return;
  }
  free_looks_ = 0;
}

void AdaptiveThreads::set(int threads) {
  free_looks_ = 0;
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
  threads_ = threads;
}

std::optional<double> AdaptiveThreads::others() const {
  return share_of_others({}, total_);
}

double AdaptiveThreads::mean_threads() const {
  return total_.wall > 0 ? thread_seconds_ / total_.wall : threads_;
}

AdaptiveThreads* AdaptiveThreads::current() {
  return innermost_threads;
}

void adapt_threads() {
  if (innermost_threads != nullptr) innermost_threads->step();
}

}  // namespace ulp::amp
