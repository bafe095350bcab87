// Errors by their text and their code, for every test.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "ulp/base/error.h"

namespace ulp::test {

/// The message of the ulp::Error that `action` throws; fails the test when it throws none.
template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an ulp::Error, got none";
  return "";
}

/// The code of the ulp::Error that `action` throws; fails the test when it throws none.
template <typename Action>
ErrorCode code_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "expected an ulp::Error, got none";
  return ErrorCode::failed;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace ulp::test

/// EXPECT that a message has a part.
#define EXPECT_SAYS(message, part) EXPECT_PRED2(ulp::test::contains, (message), std::string(part))

/// EXPECT that a statement throws an ulp::Error whose message has a part.
#define EXPECT_ERROR(statement, part) EXPECT_SAYS(ulp::test::error_of([&] { statement; }), part)
