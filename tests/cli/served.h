// Calls of the tool without its start-up: LibTorch registers its operators for longer than most commands of
// the tests take. So one process of the tool loads its libraries and waits in front of main(), and each
// call is a copy of it (fork).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace ulp::test {

/// The words of `args` as a shell between double quotes would split them; nullopt where it would do more
/// than split at blanks and take single quotes off: variables, patterns, redirections, several commands.
std::optional<std::vector<std::string>> plain_words(const std::string& args);

/// A process of the tool that makes copies of itself. It starts in the environment of this process with
/// OMP_NUM_THREADS set, and serves calls in that environment alone.
class ToolServer {
 public:
  /// Throws std::runtime_error where it does not start, or has more than one thread: a copy would lack the
  /// others.
  explicit ToolServer(const std::string& omp_num_threads);
  ~ToolServer();
  ToolServer(const ToolServer&) = delete;
  ToolServer& operator=(const ToolServer&) = delete;

  /// Whether the environment of this process is still what it was: libraries read some of its variables as
  /// they load.
  bool has_this_environment() const;
  /// Starts the tool with these words in the folder, where `out` and `err` are the files of its output.
  pid_t start(const std::string& folder, const std::string& out, const std::string& err,
              const std::vector<std::string>& words) const;
  /// Waits for what start() returned; the status is that of waitpid().
  int wait(pid_t process) const;

 private:
  /// The server's answer.
  int ask(const std::vector<std::string>& words) const;

  int socket_ = -1;
  pid_t process_ = -1;
  std::vector<std::string> environment_;
};

}  // namespace ulp::test
