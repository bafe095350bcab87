// Random changes of files in the safetensors container: of the header, of JSON texts in its metadata (a plan, the
// state of an optimizer), of sizes wherever they stand, of the tensors' bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "json_mutator.h"

namespace ulp::fuzz {

/// For LLVMFuzzerCustomMutator(); the vocabulary is that of the JSON texts. Bytes that are no container are
/// changed as bytes.
size_t mutate_container(uint8_t* data, size_t size, size_t max_size, unsigned int seed,
                        const Vocabulary& vocabulary);

/// For files that are one JSON text.
size_t mutate_text(uint8_t* data, size_t size, size_t max_size, unsigned int seed,
                   const Vocabulary& vocabulary);

}  // namespace ulp::fuzz
