// What a process prints, line by line, with a prefix; internal to the room.
#pragma once

#include <string>

namespace ulp::app {

/// Reads what comes out of a pipe and writes whole lines behind a prefix. A line that ends with a carriage
/// return, as progress bars draw, is one, too.
class PrefixedLines {
 public:
  /// Takes the descriptor `from` over.
  PrefixedLines(int from, int to, std::string prefix);
  ~PrefixedLines();
  PrefixedLines(const PrefixedLines&) = delete;
  PrefixedLines& operator=(const PrefixedLines&) = delete;

  bool open() const { return from_ >= 0; }
  int descriptor() const { return from_; }
  /// Reads what is there and writes what is whole.
  void pass();
  /// Writes the last line even if it has no end.
  void finish();

 private:
  void write_line(const std::string& line);

  int from_, to_;
  std::string prefix_, rest_;
};

}  // namespace ulp::app
