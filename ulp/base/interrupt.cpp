#include "ulp/base/interrupt.h"

#include <signal.h>

#include <atomic>

namespace ulp {

namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // safe to set in a signal handler

void on_signal(int) {
  flag.store(true, std::memory_order_relaxed);
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESETHAND;  // the next one has its default effect
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of write(), not the end of the process
}

bool interrupted() {
  return flag.load(std::memory_order_relaxed);
}

void check_interrupted() {
  if (interrupted()) throw Interrupted();
}

}  // namespace ulp
