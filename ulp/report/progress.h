// Progress of a long job: a bar with rate and time left on a terminal, plain lines now and then elsewhere.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "ulp/base/export.h"

namespace ulp::report {

/// How progress is shown, and where.
struct ProgressOptions {
  std::string unit = "it";  ///< what is counted: "batch", "image"
  int descriptor = 2;       ///< where to draw; 2 is stderr, 1 stdout
  std::optional<bool> interactive =
      {};                    ///< a bar or plain lines; unset: a bar if the descriptor is a terminal
  double line_seconds = 10;  ///< between plain lines
  bool leave = true;         ///< leave the last line behind (the bar is wiped otherwise)
  bool silent = false;       ///< show nothing
};

/// One bar at a time per terminal. All functions may be called from any thread; advance() and update() take a
/// clock reading and draw at most ten times a second. NO_COLOR, TERM=dumb, the terminal's width (also when it
/// changes) and a locale without UTF-8 are respected.
class ULP_API Progress {
 public:
  /// total <= 0 means unknown: counts and rate without bar and time left.
  Progress(std::string title, int64_t total, ProgressOptions options = {});
  /// Ends the bar where it stands (also when an exception passes) and gives the cursor back.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Counts `steps` more; `note` is short free text such as "loss 0.41", shown when this call draws.
  void advance(int64_t steps = 1, std::string_view note = {});
  /// Sets the count.
  void update(int64_t done, std::string_view note = {});
  /// Prints a line above the bar.
  void print(std::string_view line);
  /// Draws the last state, ends the line and gives the cursor back. Later calls do nothing.
  void finish(std::string_view note = {});

  /// Shows the cursor again if a bar hid it. Async-signal-safe: for the handler of a signal that ends the
  /// process.
  static void restore_cursor() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  void tick(int64_t done, std::string_view note);
  void draw(Clock::time_point now, bool last);
  void measure_rate(Clock::time_point now);
  std::string bar_line(int width, double elapsed, bool last) const;
  std::string plain_line(double elapsed, bool last) const;
  void emit(const std::string& text) const;

  const std::string title_;
  const int64_t total_;
  const ProgressOptions options_;
  bool interactive_ = false, color_ = false, unicode_ = false;
  const Clock::time_point start_ = Clock::now();
  std::atomic<int64_t> done_{0};
  std::atomic<Clock::rep> next_draw_{0};

  std::mutex mutex_;  // guards what follows and the terminal
  std::string note_;
  bool finished_ = false;
  Clock::time_point rate_time_ = start_;
  int64_t rate_done_ = 0;
  double rate_sum_ = 0, rate_weight_ = 0;  // bias-corrected moving average
};

}  // namespace ulp::report
