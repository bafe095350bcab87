// One ordered table for each family of kernels says which implementation serves an instruction set: the best
// one first, the portable one last. A new instruction set is a row in isa.cpp and a row in the table of each
// family that it speeds up.
#pragma once

#include <cstddef>

#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels {

/// What only one architecture has, for its rows of a table; {} on another one, which never admits them.
#if defined(__x86_64__)
#define ULP_ON_X86(...) __VA_ARGS__
#define ULP_ON_ARM(...) \
  {}
#elif defined(__aarch64__)
#define ULP_ON_X86(...) \
  {}
#define ULP_ON_ARM(...) __VA_ARGS__
#endif

/// A way to do something, and the instruction set it is compiled for.
template <typename Implementation>
struct Variant {
  Isa needs;
  Implementation implementation;
};

/// The first implementation of the table that `isa` admits (see admits()). The last entry needs
/// Isa::portable, which every `isa` admits.
template <typename Implementation, size_t kCount>
Implementation first_admitted(const Variant<Implementation> (&table)[kCount], Isa isa) {
  for (const Variant<Implementation>& variant : table) {
    if (admits(isa, variant.needs)) return variant.implementation;
  }
  return table[kCount - 1].implementation;
}

/// What the first function of the table makes that `isa` admits and that takes the arguments: the others
/// return null. The last entry needs Isa::portable and takes all.
template <typename Maker, size_t kCount, typename... Args>
auto make_first(const Variant<Maker> (&table)[kCount], Isa isa, const Args&... args) {
  for (const Variant<Maker>& variant : table) {
    if (!admits(isa, variant.needs)) continue;
    if (auto made = variant.implementation(args...)) return made;
  }
  return table[kCount - 1].implementation(args...);
}

}  // namespace ulp::kernels
