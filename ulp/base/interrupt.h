// Ctrl-C as a flag: work that has something to save asks between steps and ends cleanly.
#pragma once

#include "ulp/base/error.h"
#include "ulp/base/export.h"

namespace ulp {

/// Thrown by work that noticed interrupted(). The tool exits with 130.
class ULP_API Interrupted : public Error {
 public:
  Interrupted() : Error("interrupted", {.code = ErrorCode::interrupted}) {}
};

/// Takes over SIGINT and SIGTERM. The first one sets the flag while something polls it; else, and the second time, it
/// ends the process at once with the code 130, after `message` on stderr. The text, which is not null, must live as long as the process.
/// Programs call this, libraries never do.
ULP_API void catch_interrupts(const char* message);

/// Lives while a loop asks for the flag between its steps.
class ULP_API PollsInterrupts {
 public:
  PollsInterrupts();
  ~PollsInterrupts();
  PollsInterrupts(const PollsInterrupts&) = delete;
  PollsInterrupts& operator=(const PollsInterrupts&) = delete;
};

/// True once a signal has come.
ULP_API bool interrupted();
/// Throws Interrupted if the flag is set.
ULP_API void check_interrupted();

}  // namespace ulp
