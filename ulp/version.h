// The version of ulp, for C and C++. CMake reads it from here, so this is the one place to change it.
#pragma once

#define ULP_VERSION_MAJOR 0
#define ULP_VERSION_MINOR 1
#define ULP_VERSION_PATCH 0

#define ULP_VERSION_WORD_(number) #number
#define ULP_VERSION_WORDS_(major, minor, patch) \
  ULP_VERSION_WORD_(major) "." ULP_VERSION_WORD_(minor) "." ULP_VERSION_WORD_(patch)

/// "major.minor.patch" as a string literal. Before 1.0 a new minor version may change the API.
#define ULP_VERSION ULP_VERSION_WORDS_(ULP_VERSION_MAJOR, ULP_VERSION_MINOR, ULP_VERSION_PATCH)

#ifdef __cplusplus
namespace ulp {

/// The version a program was compiled against.
inline constexpr const char* kVersion = ULP_VERSION;

}  // namespace ulp
#endif
