#include "ulp/report/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/report/count.h"
#include "ulp/report/format.h"

namespace ulp::report {
namespace {

struct Stopwatch {
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

// A file that remembers what was written to it.
struct Sink {
  int descriptor = memfd_create("progress", 0);
  ~Sink() { close(descriptor); }
  std::string text() const {
    std::string out(static_cast<size_t>(lseek(descriptor, 0, SEEK_END)), '\0');
    EXPECT_EQ(pread(descriptor, out.data(), out.size(), 0), static_cast<ssize_t>(out.size()));
    return out;
  }
};

// A terminal of the given width.
struct Terminal {
  int master = -1, slave = -1;
  explicit Terminal(unsigned short columns) {
    winsize size{24, columns, 0, 0};
    if (openpty(&master, &slave, nullptr, nullptr, &size) != 0)
      throw std::runtime_error("no pseudo-terminal");
    fcntl(master, F_SETFL, O_NONBLOCK);
  }
  ~Terminal() {
    close(master);
    close(slave);
  }
  std::string text() const {
    std::string out;
    char buffer[4096];
    for (ssize_t n; (n = read(master, buffer, sizeof buffer)) > 0;)
      out.append(buffer, static_cast<size_t>(n));
    return out;
  }
};

class ProgressTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("NO_COLOR");
  }
};

// The texts between two carriage returns, without escape sequences: what the terminal shows one after
// another.
std::vector<std::string> frames(const std::string& text) {
  std::vector<std::string> out(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && !isalpha(static_cast<unsigned char>(text[i]))) ++i;
    } else if (text[i] == '\r' || text[i] == '\n') {
      out.emplace_back();
    } else {
      out.back() += text[i];
    }
  }
  return out;
}

TEST_F(ProgressTest, WritesPlainLinesWhereThereIsNoTerminal) {
  Sink sink;
  {
    Progress progress("Training fp32", 4, {.unit = "batch", .descriptor = sink.descriptor});
    for (int i = 0; i < 4; ++i) progress.advance(1, "loss 0.5");
  }
  const std::string text = sink.text();
  EXPECT_EQ(count(text, "\n"), 1u) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.rfind("Training fp32: 100 % (4/4 batch)", 0), 0u) << text;
  EXPECT_NE(text.find("in 0:00, loss 0.5\n"), std::string::npos) << text;
}

TEST_F(ProgressTest, WritesPlainLinesAtIntervals) {
  Sink sink;
  const Stopwatch watch;
  {
    Progress progress("Job", 1000, {.descriptor = sink.descriptor, .line_seconds = 0.02});
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
      progress.advance(1);
      progress.advance(1);  // not due yet
    }
  }
  const std::string text = sink.text();
  EXPECT_GE(count(text, "elapsed"), 3u) << text;
  EXPECT_LE(static_cast<double>(count(text, "elapsed")), watch.seconds() / 0.02 + 1) << text;
  EXPECT_NE(text.find("stopped after"), std::string::npos) << text;
}

TEST_F(ProgressTest, DrawsABarAndGivesTheCursorBack) {
  Terminal terminal(120);
  const Stopwatch watch;
  {
    Progress progress("Job", 2000, {.unit = "batch", .descriptor = terminal.slave});
    progress.update(1240);
    std::this_thread::sleep_for(std::chrono::milliseconds(110));
    progress.update(1241, "loss 0.41");
  }
  const std::string text = terminal.text();
  EXPECT_EQ(count(text, "\x1b[?25l"), 1u);
  EXPECT_EQ(count(text, "\x1b[?25h"), 1u);
  EXPECT_GT(text.find("\x1b[?25h"), text.rfind("stopped after"));
  EXPECT_NE(text.find("━"), std::string::npos);
  EXPECT_NE(text.find("1,241/2,000 batch"), std::string::npos);
  EXPECT_NE(text.find("left  loss 0.41"), std::string::npos) << text;
  EXPECT_LE(static_cast<double>(count(text, "\r\x1b[2K")),
            watch.seconds() / 0.1 + 2);  // first, those due, last
}

TEST_F(ProgressTest, GivesTheCursorBackWhenAnExceptionPasses) {
  Terminal terminal(80);
  try {
    Progress progress("Job", 10, {.descriptor = terminal.slave});
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(count(terminal.text(), "\x1b[?25h"), 1u);
}

TEST_F(ProgressTest, NeverFillsTheTerminalsWidth) {
  for (const unsigned short width : {200, 100, 80, 60, 40, 20, 6}) {
    Terminal terminal(width);
    {
      Progress progress("Training ünïcode", 200000, {.unit = "image", .descriptor = terminal.slave});
      std::this_thread::sleep_for(std::chrono::milliseconds(105));
      progress.update(123456, "loss 0.4123, accuracy 91.5 %");
    }
    for (const auto& frame : frames(terminal.text())) EXPECT_LT(display_width(frame), width) << frame;
  }
}

TEST_F(ProgressTest, UsesNoColorAndNoUnicodeWhenAsked) {
  setenv("NO_COLOR", "1", 1);
  setenv("LC_ALL", "C", 1);
  Terminal terminal(100);
  { Progress("Job", 10, {.descriptor = terminal.slave}).update(10); }
  const std::string text = terminal.text();
  EXPECT_EQ(text.find("\x1b[36m"), std::string::npos);
  EXPECT_NE(text.find("[####"), std::string::npos) << text;
  for (const char c : text) EXPECT_LT(static_cast<unsigned char>(c), 0x80);
}

TEST_F(ProgressTest, TreatsADumbTerminalAsNone) {
  setenv("TERM", "dumb", 1);
  Terminal terminal(100);
  { Progress("Job", 10, {.descriptor = terminal.slave}).update(10); }
  EXPECT_EQ(terminal.text().find('\x1b'), std::string::npos);
}

TEST_F(ProgressTest, CountsEveryStepOfEveryThread) {
  Sink sink;
  {
    Progress progress("Job", 40000, {.descriptor = sink.descriptor, .interactive = true});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 10000; ++i) progress.advance(1, "working");
      });
    }
    progress.print("a line between");
    for (auto& thread : threads) thread.join();
  }
  const std::string text = sink.text();
  EXPECT_NE(text.find("40,000/40,000"), std::string::npos) << text;
  EXPECT_NE(text.find("a line between\n"), std::string::npos);
}

TEST_F(ProgressTest, ShowsCountAndRateWhenTheTotalIsUnknown) {
  Sink sink;
  Progress progress("Scan", 0, {.unit = "file", .descriptor = sink.descriptor});
  progress.update(1234);
  progress.finish("done");
  progress.finish("again");
  EXPECT_EQ(sink.text().rfind("Scan: 1,234 file, ", 0), 0u) << sink.text();
  EXPECT_EQ(count(sink.text(), "\n"), 1u);
}

}  // namespace
}  // namespace ulp::report
