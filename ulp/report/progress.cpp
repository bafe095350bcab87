#include "ulp/report/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ulp/report/format.h"

namespace ulp::report {
namespace {

constexpr auto kDrawInterval = std::chrono::milliseconds(100);
constexpr double kRateSeconds = 5;  // time constant of the shown rate
constexpr char kHideCursor[] = "\x1b[?25l";
constexpr char kShowCursor[] = "\x1b[?25h";

std::atomic<int> hidden_cursor_descriptor{-1};

void write_all(int descriptor, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a closed pipe must not end the job that reports through it
    data += written;
    bytes -= static_cast<size_t>(written);
  }
}

int terminal_width(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int value = columns == nullptr ? 0 : std::atoi(columns);
  return value > 0 ? value : 80;
}

bool environment_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

std::string bar(double fraction, int width, bool unicode, bool color) {
  const int halves = static_cast<int>(std::floor(std::clamp(fraction, 0.0, 1.0) * width * 2));
  const int full = unicode ? halves / 2 : (halves + 1) / 2;
  std::string done, rest;
  for (int i = 0; i < full; ++i) done += unicode ? "━" : "#";
  int used = full;
  if (unicode && halves % 2 == 1 && used < width) {
    done += "╸";
    ++used;
  }
  for (int i = used; i < width; ++i) rest += unicode ? (color ? "━" : " ") : "-";
  if (color) return "\x1b[36m" + done + "\x1b[90m" + rest + "\x1b[0m";
  return "[" + done + rest + "]";
}

double seconds(std::chrono::steady_clock::duration span) {
  return std::chrono::duration<double>(span).count();
}

}  // namespace

void Progress::restore_cursor() noexcept {
  const int descriptor = hidden_cursor_descriptor.exchange(-1);
  if (descriptor >= 0) write_all(descriptor, kShowCursor, sizeof kShowCursor - 1);
}

Progress::Progress(std::string title, int64_t total, ProgressOptions options)
    : title_(clean_line(title)), total_(total), options_(std::move(options)) {
  const char* term = std::getenv("TERM");
  const bool capable =
      isatty(options_.descriptor) != 0 && (term == nullptr || std::strcmp(term, "dumb") != 0);
  interactive_ = options_.interactive.value_or(capable);
  color_ = interactive_ && !environment_set("NO_COLOR");
  unicode_ = locale_is_utf8();
  const auto first =
      interactive_
          ? Clock::duration(kDrawInterval)
          : std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.line_seconds));
  next_draw_ = (start_ + first).time_since_epoch().count();
  if (interactive_) {
    static const int registered = std::atexit([] { restore_cursor(); });
    (void)registered;
    hidden_cursor_descriptor = options_.descriptor;
    const std::lock_guard lock(mutex_);
    emit(kHideCursor);
    draw(start_, false);
  }
}

Progress::~Progress() {
  finish();
}

void Progress::advance(int64_t steps, std::string_view note) {
  tick(done_.fetch_add(steps, std::memory_order_relaxed) + steps, note);
}

void Progress::update(int64_t done, std::string_view note) {
  done_.store(done, std::memory_order_relaxed);
  tick(done, note);
}

void Progress::tick(int64_t done, std::string_view note) {
  const auto now = Clock::now();
  auto due = next_draw_.load(std::memory_order_relaxed);
  const bool complete = total_ > 0 && done >= total_;
  if (now.time_since_epoch().count() < due && !complete) return;
  const auto interval = interactive_ ? seconds(kDrawInterval) : options_.line_seconds;
  const auto next =
      now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(interval));
  // One thread wins the right to draw; the others go on with their work.
  if (!next_draw_.compare_exchange_strong(due, next.time_since_epoch().count()) && !complete) return;
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  if (!note.empty()) note_ = clean_line(note);
  if (interactive_ || !complete) draw(now, false);  // finish() prints the last plain line
}

void Progress::print(std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (interactive_ && !finished_) emit("\r\x1b[2K");
  emit(clean_line(line) + "\n");
  if (interactive_ && !finished_) draw(Clock::now(), false);
}

void Progress::finish(std::string_view note) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  if (!note.empty()) note_ = clean_line(note);
  draw(Clock::now(), true);
  finished_ = true;
  if (interactive_) restore_cursor();
}

void Progress::measure_rate(Clock::time_point now) {
  const double span = seconds(now - rate_time_);
  const int64_t done = done_.load(std::memory_order_relaxed);
  if (span < 0.05 || done == rate_done_) return;
  const double keep = std::exp(-span / kRateSeconds);
  rate_sum_ = keep * rate_sum_ + (1 - keep) * static_cast<double>(done - rate_done_) / span;
  rate_weight_ = keep * rate_weight_ + (1 - keep);
  rate_time_ = now;
  rate_done_ = done;
}

void Progress::draw(Clock::time_point now, bool last) {
  const double elapsed = seconds(now - start_);
  measure_rate(now);
  if (!interactive_) {
    if (!last || options_.leave) emit(plain_line(elapsed, last) + "\n");
    return;
  }
  if (last && !options_.leave) return emit("\r\x1b[2K");
  // One column stays free: some terminals wrap as soon as the last one is written.
  emit("\r\x1b[2K" + bar_line(terminal_width(options_.descriptor) - 1, elapsed, last) + (last ? "\n" : ""));
}

namespace {

struct Words {
  std::string percent, counts, rate, time;
};

Words words(int64_t done, int64_t total, const std::string& unit, double rate, double elapsed, bool last) {
  Words out;
  const auto count = [](int64_t n) { return format_number(static_cast<double>(n), 0); };
  if (total > 0) {
    out.percent = count(std::min<int64_t>(100, 100 * done / total)) + " %";
    out.counts = count(done) + "/" + count(total) + " " + unit;
  } else {
    out.counts = count(done) + " " + unit;
  }
  if (last) rate = elapsed > 0 ? static_cast<double>(done) / elapsed : 0;  // over all, once it is known
  if (rate > 0) out.rate = format_number(rate, rate >= 100 ? 0 : rate >= 10 ? 1 : 2) + " " + unit + "/s";
  out.time = format_duration(elapsed);
  const bool complete = total > 0 && done >= total;
  if (last) {
    out.time = (complete || total <= 0 ? "in " : "stopped after ") + out.time;
  } else if (total > 0) {
    const double left = complete ? 0 : rate > 0 ? static_cast<double>(total - done) / rate : NAN;
    out.time += " elapsed, " + format_duration(left) + " left";
  }
  return out;
}

}  // namespace

std::string Progress::plain_line(double elapsed, bool last) const {
  const double rate = rate_weight_ > 0 ? rate_sum_ / rate_weight_ : 0;
  const Words w = words(done_, total_, options_.unit, rate, elapsed, last);
  std::string out = title_ + ": " + (w.percent.empty() ? w.counts : w.percent + " (" + w.counts + ")");
  for (const std::string& part : {w.rate, w.time, note_}) {
    if (!part.empty()) out += ", " + part;
  }
  return out;
}

std::string Progress::bar_line(int width, double elapsed, bool last) const {
  constexpr int kLongBar = 24, kShortBar = 8;
  const double rate = rate_weight_ > 0 ? rate_sum_ / rate_weight_ : 0;
  const Words w = words(done_, total_, options_.unit, rate, elapsed, last);
  // What is dropped first when the terminal is narrow comes last here.
  std::vector<std::string> shown;
  int used = display_width(title_);
  const int bar_space = total_ > 0 ? kShortBar + 4 : 0;
  for (const std::string& part : {w.percent, w.time, note_, w.rate, w.counts}) {
    const int needed = part.empty() ? 0 : display_width(part) + 2;
    const bool fits = used + needed + bar_space <= width;
    shown.push_back(fits ? part : std::string());
    if (fits) used += needed;
  }
  std::string line = truncate_to_width(title_, width, unicode_);
  if (total_ > 0 && used + bar_space <= width) {
    const int length = std::clamp(width - used - 4, kShortBar, kLongBar);
    line += "  " + bar(static_cast<double>(done_) / static_cast<double>(total_), length, unicode_, color_);
  }
  for (const size_t i : {size_t{0}, size_t{4}, size_t{3}, size_t{1}, size_t{2}}) {
    if (!shown[i].empty()) line += "  " + shown[i];
  }
  return line;
}

void Progress::emit(const std::string& text) const {
  if (options_.silent) return;
  write_all(options_.descriptor, text.data(), text.size());
}

}  // namespace ulp::report
