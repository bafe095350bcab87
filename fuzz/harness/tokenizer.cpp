// tokenizer.json: what is read encodes texts, the file itself among them, and decodes them.
#include "ulp/io/tokenizer/tokenizer.h"

#include "container_mutator.h"
#include "harness.h"

namespace {

void encode(const ulp::io::Tokenizer& tokenizer, std::string_view text) {
  const auto encoded = tokenizer.encode(text);
  ulp::fuzz::require(encoded.ids.size() == encoded.ranges.size(), "a range for each token");
  for (const int64_t id : encoded.ids)
    ulp::fuzz::require(id < tokenizer.vocab_size(), "ids of the vocabulary");
  tokenizer.decode(encoded.ids);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ulp::fuzz::refused([&] {
    const auto tokenizer = ulp::io::Tokenizer::from_json(bytes);
    encode(tokenizer, "The caf\xC3\xA9's [MASK] \xE4\xB8\xAD\xE6\x96\x87 low lower<|endoftext|> ");
    encode(tokenizer, bytes);  // JSON is UTF-8
  });
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  static const ulp::fuzz::Vocabulary vocabulary = {
      .words = {"WordPiece", "BPE", "BertNormalizer", "BertPreTokenizer", "ByteLevel", "TemplateProcessing",
                "BertProcessing", "Sequence", "[CLS]", "[UNK]", "##", "a b", "lo", "<|endoftext|>"},
      .fields = {{"type", "ByteLevel"},
                 {"id", 1},
                 {"ids", {1, 2}},
                 {"content", "low"},
                 {"normalized", true},
                 {"lstrip", true},
                 {"rstrip", true},
                 {"single_word", true},
                 {"max_input_chars_per_word", 1},
                 {"unk_token", "[UNK]"},
                 {"fuse_unk", true},
                 {"ignore_merges", true},
                 {"processors", nlohmann::json::array()},
                 {"merges", {"l o", "lo w"}},
                 {"pad_id", 3}}};
  return ulp::fuzz::mutate_text(data, size, max_size, seed, vocabulary);
}
