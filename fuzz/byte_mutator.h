// Changes of bytes for programs without libFuzzer, which has its own.
#pragma once

namespace ulp::fuzz {

/// What LLVMFuzzerMutate() does next depends on this alone.
void seed_byte_mutator(unsigned int seed);

}  // namespace ulp::fuzz
