#include "ulp/app/train/launch_output.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ulp::app {

PrefixedLines::PrefixedLines(int from, int to, std::string prefix)
    : from_(from), to_(to), prefix_(std::move(prefix)) {}

PrefixedLines::~PrefixedLines() {
  if (open()) ::close(from_);
}

void PrefixedLines::pass() {
  char bytes[1 << 14];
  const ssize_t count = ::read(from_, bytes, sizeof bytes);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count <= 0) {
    ::close(std::exchange(from_, -1));
    return finish();
  }
  rest_.append(bytes, static_cast<size_t>(count));
  size_t begin = 0;
  for (size_t end = rest_.find_first_of("\n\r"); end != std::string::npos;
       end = rest_.find_first_of("\n\r", begin)) {
    if (end > begin || rest_[end] == '\n') write_line(rest_.substr(begin, end - begin));
    begin = end + 1;
  }
  rest_.erase(0, begin);
}

void PrefixedLines::finish() {
  if (!rest_.empty()) write_line(std::exchange(rest_, {}));
}

void PrefixedLines::write_line(const std::string& line) {
  const std::string text = prefix_ + line + '\n';
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(to_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // nobody reads it; the processes are not ended for that
    done += static_cast<size_t>(count);
  }
}

}  // namespace ulp::app
