// tokenizer.json: what is read encodes a text and decodes it.
#include "harness.h"
#include "ulp/io/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ulp::fuzz::refused([&] {
    const auto tokenizer = ulp::io::Tokenizer::from_json(bytes);
    const auto encoded = tokenizer.encode("The caf\xC3\xA9's [MASK] \xE4\xB8\xAD\xE6\x96\x87 low lower<|endoftext|> ");
    ulp::fuzz::require(encoded.ids.size() == encoded.ranges.size(), "a range for each token");
    for (const int64_t id : encoded.ids) ulp::fuzz::require(id < tokenizer.vocab_size(), "ids of the vocabulary");
    tokenizer.decode(encoded.ids);
  });
  return 0;
}
