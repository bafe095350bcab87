// What GCC and clang spell differently. Macros alone.
#pragma once

#ifdef __clang__
/// A function that is compiled once: neither inlined nor specialised for its callers.
#define ULP_ONE_COPY __attribute__((noinline))
/// Before a loop whose elements depend on no others. Clang finds out at run time.
#define ULP_INDEPENDENT
#else
#define ULP_ONE_COPY __attribute__((noinline, noclone))
#define ULP_INDEPENDENT _Pragma("GCC ivdep")
#endif
