// Loaded before the tool (LD_PRELOAD), makes a process of it serve a test: the tool's libraries are loaded
// and initialized once, then each call is a copy of that process in which the tool's main() begins. Which
// calls may be served is decided in tests/cli/served.h.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "messages.h"

namespace {

using Main = int (*)(int, char**, char**);
Main tool_main;

/// How many threads this process has.
int count_threads() {
  int count = 0;
  DIR* const threads = ::opendir("/proc/self/task");
  while (const dirent* entry = ::readdir(threads)) count += entry->d_name[0] != '.';
  ::closedir(threads);
  return count;
}

/// The environment of the calls: without what made this process a server.
void restore_environment() {
  ::unsetenv(ulp::test::kServerSocket);
  const char* const others = std::strchr(std::getenv("LD_PRELOAD"), ':');
  if (others == nullptr)
    ::unsetenv("LD_PRELOAD");
  else
    ::setenv("LD_PRELOAD", others + 1, 1);
}

void redirect(int descriptor, const char* file, int flags) {
  const int opened = ::open(file, flags, 0666);
  if (opened < 0 || ::dup2(opened, descriptor) < 0) ::_exit(127);
  ::close(opened);
}

/// The tool with the words of a message: "start", the folder, the files of the output, and the command line.
[[noreturn]] void run_tool(std::vector<char*> words) {
  const char* const folder = words[1];
  if (::chdir(folder) != 0) ::_exit(127);
  ::setenv("PWD", folder, 1);
  redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  redirect(STDOUT_FILENO, words[2], O_WRONLY | O_CREAT | O_TRUNC);
  redirect(STDERR_FILENO, words[3], O_WRONLY | O_CREAT | O_TRUNC);
  words.erase(words.begin(), words.begin() + 4);
  const int count = static_cast<int>(words.size());
  words.push_back(nullptr);
  std::exit(tool_main(count, words.data(), environ));
}

int serve(int, char**, char**) {
  const int socket = std::atoi(std::getenv(ulp::test::kServerSocket));
  restore_environment();
  int answer = count_threads();
  std::vector<char> message(ulp::test::kLargestMessage);
  while (::send(socket, &answer, sizeof answer, MSG_NOSIGNAL) == sizeof answer) {
    const ssize_t size = ::recv(socket, message.data(), message.size(), 0);
    if (size <= 0) break;  // the test has ended
    std::vector<char*> words;
    for (char* at = message.data(); at < message.data() + size; at += std::strlen(at) + 1)
      words.push_back(at);
    if (std::strcmp(words[0], "start") == 0) {
      answer = ::fork();
      if (answer == 0) {
        ::close(socket);
        run_tool(words);
      }
    } else if (::waitpid(std::atoi(words[1]), &answer, 0) < 0) {
      break;
    }
  }
  ::_exit(0);
}

}  // namespace

/// The C library calls main() from here, once all libraries are initialized.
extern "C" [[gnu::visibility("default")]] int __libc_start_main(Main main, int argc, char** argv,
                                                                void (*init)(), void (*fini)(),
                                                                void (*loader_fini)(), void* stack_end) {
  using Start = decltype(&__libc_start_main);
  const auto start = reinterpret_cast<Start>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  if (std::getenv(ulp::test::kServerSocket) != nullptr) {
    tool_main = main;
    main = serve;
  }
  return start(main, argc, argv, init, fini, loader_fini, stack_end);
}
