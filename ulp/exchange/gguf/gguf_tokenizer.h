// A tokenizer as keys and values of a GGUF file. Internal to the room.
#pragma once

#include <cstdint>

#include "ulp/exchange/gguf.h"
#include "ulp/exchange/gguf/gguf_header.h"

namespace ulp::exchange::gguf {

/// The vocabulary of byte pairs, one token for each of `rows` rows of the table of words, as llama.cpp's converter writes it, and what
/// `words` says of it. Throws Error for a tokenizer whose ids readers of the file would not give: see export_gguf().
void write_tokenizer(Header& header, const io::Tokenizer& tokenizer, const GgufVocabulary& words,
                     int64_t rows);

}  // namespace ulp::exchange::gguf
