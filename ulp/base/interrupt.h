// Ctrl-C as a flag: long work asks between steps and ends cleanly.
#pragma once

#include "ulp/base/error.h"
#include "ulp/base/export.h"

namespace ulp {

/// Thrown by work that noticed interrupted(). The tool exits with 130.
class ULP_API Interrupted : public Error {
 public:
  Interrupted() : Error("interrupted") {}
};

/// Makes SIGINT and SIGTERM set the flag; a second signal ends the process at once. Programs call this,
/// libraries never do.
ULP_API void catch_interrupts();
/// True once a signal has come.
ULP_API bool interrupted();
/// Throws Interrupted if the flag is set.
ULP_API void check_interrupted();

}  // namespace ulp
