#include "ulp/base/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace ulp {

namespace {

constexpr int kInterruptedCode = 130;

std::atomic<bool> flag{false};
std::atomic<int> polling{0};
std::atomic<const char*> last_words{""};
// Safe to read and set in a signal handler.
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
              std::atomic<const char*>::is_always_lock_free);

void on_signal(int) {
  if (polling.load() > 0 && !flag.exchange(true)) return;
  const char* const words = last_words.load();
  if (::write(STDERR_FILENO, words, std::strlen(words)) < 0) {
    // Nobody reads it; the code says it, too.
  }
  ::_exit(kInterruptedCode);
}

}  // namespace

void catch_interrupts(const char* message) {
  last_words = message;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of write(), not the end of the process
}

PollsInterrupts::PollsInterrupts() {
  ++polling;
}
PollsInterrupts::~PollsInterrupts() {
  --polling;
}

bool interrupted() {
  return flag.load(std::memory_order_relaxed);
}

void check_interrupted() {
  if (interrupted()) throw Interrupted();
}

}  // namespace ulp
