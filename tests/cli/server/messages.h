// What a test and the server of the tool (preload.cpp) have in common.
//
// Over a socket that keeps messages apart, the server says how many threads it has, an int. Then it answers
// messages of words that each end with a zero byte:
//   start FOLDER STDOUT STDERR COMMAND ARGUMENT...   the process, an int; the files are where its output goes
//   wait PROCESS                                     the status of waitpid(), an int, once it has ended
#pragma once

#include <cstddef>

namespace ulp::test {

/// The environment variable that has the number of the server's socket.
inline constexpr const char* kServerSocket = "ULP_TEST_SERVER_SOCKET";
inline constexpr size_t kLargestMessage = 64 << 10;

}  // namespace ulp::test
