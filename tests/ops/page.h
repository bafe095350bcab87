// The page docs/ops.md, made from trials.
#pragma once

#include <string>

namespace ulp::test {

/// The page as it should be. Tries every call, which takes some seconds.
std::string ops_page();

/// The line by which the page names the LibTorch it was made with.
std::string made_with();

}  // namespace ulp::test
