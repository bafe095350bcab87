// Stands in for Gloo's header of this name, which LibTorch needs and does not ship: what ProcessGroupGloo.hpp
// calls.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
