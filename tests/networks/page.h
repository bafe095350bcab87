// The part of docs/networks.md that says what works with the networks of this folder.
#pragma once

#include <string>

namespace ulp::test {

/// A page with that part made anew from expected.h. Throws std::runtime_error for a page without its marks.
std::string with_networks(const std::string& page);

}  // namespace ulp::test
