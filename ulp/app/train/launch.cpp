#include "ulp/app/train/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "ulp/app/train/launch_output.h"
#include "ulp/base/cpu_usage.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/distributed/init.h"

extern char** environ;

namespace ulp::app {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kLaunchWhere = "app.launch";
constexpr int kMost = 1024;
constexpr int kLookMs = 20;       // between two looks at who has ended
constexpr int kNotStarted = 127;  // what a shell says
constexpr int kInterruptedCode = 130;

/// One process of the run.
struct Worker {
  int rank = 0;
  pid_t process = -1;
  std::optional<int> status = {};  // of waitpid(), once it has ended
  std::vector<std::unique_ptr<PrefixedLines>> outputs = {};
};

int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string story_of(const Worker& worker) {
  const std::string who =
      "rank " + std::to_string(worker.rank) + " (process " + std::to_string(worker.process) + ")";
  if (WIFEXITED(*worker.status))
    return who + " ended with exit code " + std::to_string(WEXITSTATUS(*worker.status));
  const int signal = WTERMSIG(*worker.status);
  return who + " was killed by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
}

/// The environment of a rank: this process's own, with the variables.
std::vector<std::string> environment_of(int rank, const LaunchOptions& options, int port) {
  const std::string size = std::to_string(options.processes), number = std::to_string(rank);
  std::vector<std::string> set = {"RANK=" + number,
                                  "LOCAL_RANK=" + number,
                                  "WORLD_SIZE=" + size,
                                  "LOCAL_WORLD_SIZE=" + size,
                                  "MASTER_ADDR=127.0.0.1",
                                  "MASTER_PORT=" + std::to_string(port),
                                  "TORCHELASTIC_USE_AGENT_STORE=True",
                                  "TORCHELASTIC_RESTART_COUNT=0"};
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    set.push_back("OMP_NUM_THREADS=" + std::to_string(std::max(1, usable_cores() / options.processes)));
  }
  const auto is_set = [&](const std::string& entry) {
    const std::string name = entry.substr(0, entry.find('=') + 1);
    return std::ranges::any_of(set, [&](const std::string& own) { return own.starts_with(name); });
  };
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!is_set(*entry)) all.emplace_back(*entry);
  all.insert(all.end(), set.begin(), set.end());
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

/// In the child, where nothing may be allocated: becomes the command or ends.
[[noreturn]] void become(char* const* arguments, char* const* environment, const int (&outputs)[2],
                         int report) {
  ::setpgid(0, 0);  // Ctrl-C on the terminal goes to this process alone, which passes it on once
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(outputs[0], STDOUT_FILENO);
  ::dup2(outputs[1], STDERR_FILENO);
  ::execvpe(arguments[0], arguments, environment);
  const int reason = errno;
  if (::write(report, &reason, sizeof reason) < 0) ::_exit(kNotStarted);
  ::_exit(kNotStarted);
}

/// A pipe whose ends close on exec.
struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail(kLaunchWhere, "could not make a pipe: ", std::strerror(errno));
    read_end = ends[0];
    write_end = ends[1];
  }
};

/// The processes of one run.
class Processes {
 public:
  explicit Processes(const LaunchOptions& options) : options_(options) {
    for (int rank = 0; rank < options.processes; ++rank) start(rank);
  }
  ~Processes() {
    signal_all(SIGKILL);
    for (Worker& worker : workers_)
      if (!worker.status) ::waitpid(worker.process, nullptr, 0);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  LaunchResult wait() {
    const PollsInterrupts polls;
    while (any_runs()) {
      pass_output(kLookMs);
      reap();
      if (interrupted() && !passed_on_) pass_interrupt();
      if (deadline_ && Clock::now() > *deadline_) signal_all(SIGKILL);
    }
    while (pass_output(0)) {
    }
    for (Worker& worker : workers_)
      for (auto& output : worker.outputs) output->finish();
    return result_;
  }

 private:
  void start(int rank) {
    Pipe out, error, report;
    std::vector<std::string> arguments = options_.command,
                             variables = environment_of(rank, options_, meeting_.port());
    const std::vector<char*> argument_list = pointers(arguments), variable_list = pointers(variables);
    const int outputs[2] = {out.write_end, error.write_end};
    const pid_t process = ::fork();
    if (process == 0) become(argument_list.data(), variable_list.data(), outputs, report.write_end);
    for (const int end : {out.write_end, error.write_end, report.write_end}) ::close(end);
    Worker worker{.rank = rank, .process = process};
    const std::string prefix = "[" + std::to_string(rank) + "] ";
    worker.outputs.push_back(std::make_unique<PrefixedLines>(out.read_end, STDOUT_FILENO, prefix));
    worker.outputs.push_back(std::make_unique<PrefixedLines>(error.read_end, STDERR_FILENO, prefix));
    int reason = process < 0 ? errno : 0;
    if (process > 0 && ::read(report.read_end, &reason, sizeof reason) < 0) reason = errno;
    ::close(report.read_end);
    if (process > 0) workers_.push_back(std::move(worker));
    if (reason != 0)
      fail(kLaunchWhere, "could not start '", options_.command[0], "': ", std::strerror(reason));
  }

  bool any_runs() const {
    return std::ranges::any_of(workers_, [](const Worker& worker) { return !worker.status; });
  }

  void signal_all(int signal) {
    for (const Worker& worker : workers_)
      if (!worker.status) ::kill(worker.process, signal);
  }

  /// Passes on what the processes print, waiting so long for something; false where there was nothing.
  bool pass_output(int wait_ms) {
    std::vector<pollfd> open;
    std::vector<PrefixedLines*> outputs;
    for (Worker& worker : workers_) {
      for (auto& output : worker.outputs) {
        if (!output->open()) continue;
        open.push_back({output->descriptor(), POLLIN, 0});
        outputs.push_back(output.get());
      }
    }
    if (::poll(open.data(), open.size(), wait_ms) <= 0) return false;
    for (size_t i = 0; i < open.size(); ++i)
      if (open[i].revents != 0) outputs[i]->pass();
    return true;
  }

  /// Who has ended since the last look; one that did not end well ends the others.
  void reap() {
    const Worker* first = nullptr;
    for (Worker& worker : workers_) {
      int status = 0;
      if (worker.status || ::waitpid(worker.process, &status, WNOHANG) != worker.process) continue;
      worker.status = status;
      // Others fail because one was killed, seldom the other way round.
      if (status != 0 && (first == nullptr || (WIFSIGNALED(status) && !WIFSIGNALED(*first->status))))
        first = &worker;
    }
    if (first == nullptr || !result_.what.empty()) return;
    result_ = {code_of(*first->status), story_of(*first)};
    if (passed_on_) {
      result_.code = kInterruptedCode;
      return;
    }
    signal_all(SIGTERM);
    deadline_ = Clock::now() + options_.grace;
  }

  void pass_interrupt() {
    passed_on_ = true;
    signal_all(SIGINT);
  }

  const LaunchOptions& options_;
  distributed::MeetingPoint meeting_;
  std::vector<Worker> workers_;
  bool passed_on_ = false;
  std::optional<Clock::time_point> deadline_;
  LaunchResult result_;
};

}  // namespace

LaunchResult launch(const LaunchOptions& options) {
  if (options.processes < 1 || options.processes > kMost)
    fail(kLaunchWhere, "expected 1 to ", kMost, " processes, got ", options.processes);
  if (options.command.empty()) fail(kLaunchWhere, "expected a command, got none");
  LaunchResult result = Processes(options).wait();
  if (result.code == 0 && interrupted()) result.code = kInterruptedCode;
  return result;
}

}  // namespace ulp::app
