#include "served.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "server/messages.h"

namespace ulp::test {

namespace {

/// Stands for itself in a shell, outside of quotes.
bool is_plain(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
         static_cast<unsigned char>(letter) >= 0x80 || std::strchr("_-./:=,+@%", letter) != nullptr;
}

std::vector<std::string> environment_now() {
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) variables.emplace_back(*at);
  std::ranges::sort(variables);
  return variables;
}

[[noreturn]] void become_server(int socket, const std::string& omp_num_threads) {
  const char* const others = std::getenv("LD_PRELOAD");
  ::setenv("LD_PRELOAD",
           (std::string(ULP_TOOL_SERVER) + (others == nullptr ? "" : std::string(":") + others)).c_str(), 1);
  ::setenv(kServerSocket, std::to_string(::dup(socket)).c_str(), 1);  // open after exec()
  ::setenv("OMP_NUM_THREADS", omp_num_threads.c_str(), 1);
  ::execl(ULP_TOOL, ULP_TOOL, static_cast<char*>(nullptr));
  ::_exit(127);
}

}  // namespace

std::optional<std::vector<std::string>> plain_words(const std::string& args) {
  std::vector<std::string> words;
  bool in_word = false, in_quotes = false;
  for (const char letter : args) {
    if (std::strchr("\"$`\\", letter) != nullptr)
      return std::nullopt;  // the double quotes leave these to the shell
    if (!in_quotes && letter == ' ') {
      in_word = false;
      continue;
    }
    if (letter != '\'' && !in_quotes && !is_plain(letter)) return std::nullopt;
    if (!in_word) words.emplace_back();
    in_word = true;
    if (letter == '\'')
      in_quotes = !in_quotes;
    else
      words.back() += letter;
  }
  if (in_quotes) return std::nullopt;
  return words;
}

ToolServer::ToolServer(const std::string& omp_num_threads) : environment_(environment_now()) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::runtime_error("socketpair failed");
  process_ = ::fork();
  if (process_ == 0) become_server(ends[1], omp_num_threads);
  ::close(ends[1]);
  socket_ = ends[0];
  int threads = 0;
  if (::recv(socket_, &threads, sizeof threads, 0) != sizeof threads || threads != 1)
    throw std::runtime_error("expected the tool to wait before main() with one thread, got " +
                             std::to_string(threads));
}

ToolServer::~ToolServer() {
  ::close(socket_);
  ::waitpid(process_, nullptr, 0);
}

bool ToolServer::has_this_environment() const {
  return environment_now() == environment_;
}

pid_t ToolServer::start(const std::string& folder, const std::string& out, const std::string& err,
                        const std::vector<std::string>& words) const {
  std::vector<std::string> message = {"start", folder, out, err, ULP_TOOL};
  message.insert(message.end(), words.begin(), words.end());
  const pid_t process = ask(message);
  if (process < 0) throw std::runtime_error("the process that serves calls of the tool could not be copied");
  return process;
}

int ToolServer::wait(pid_t process) const {
  return ask({"wait", std::to_string(process)});
}

int ToolServer::ask(const std::vector<std::string>& words) const {
  std::string message;
  for (const std::string& word : words) message += word + '\0';
  int answer = 0;
  if (message.size() > kLargestMessage ||
      ::send(socket_, message.data(), message.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(message.size()) ||
      ::recv(socket_, &answer, sizeof answer, 0) != sizeof answer)
    throw std::runtime_error("the process that serves calls of the tool ended");
  return answer;
}

}  // namespace ulp::test
