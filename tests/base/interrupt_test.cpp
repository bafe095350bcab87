// Signals: a flag where somebody asks for it, the end of the process where nobody does.
#include "ulp/base/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace {

/// The code with which a child that runs `body` ends.
int code_of(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDERR_FILENO);
    ulp::catch_interrupts("interrupted\n");
    body();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Interrupt, WithoutAnybodyWhoAsksASignalEndsTheProcess) {
  for (const int number : {SIGINT, SIGTERM}) {
    EXPECT_EQ(code_of([=] { ::raise(number); }), 130);
    EXPECT_EQ(code_of([=] {
                { const ulp::PollsInterrupts over; }
                ::raise(number);
              }),
              130);
  }
}

TEST(Interrupt, WhoAsksSeesTheFirstSignalAndTheSecondEndsTheProcess) {
  EXPECT_EQ(code_of([] {
              const ulp::PollsInterrupts polls;
              ::raise(SIGTERM);
              ::_exit(ulp::interrupted() ? 7 : 8);
            }),
            7);
  EXPECT_EQ(code_of([] {
              const ulp::PollsInterrupts polls;
              ::raise(SIGINT);
              ::raise(SIGINT);
            }),
            130);
}

}  // namespace
