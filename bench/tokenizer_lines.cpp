// What bench/peers/tokenizers_check.py compares with Hugging Face's tokenizers:
//   tokenizer_lines train wordpiece|bpe TEXT VOCABULARY OUT.json
//   tokenizer_lines encode TOKENIZER.json RECORDS
// A record is a number of bytes, a line end, and a text of so many bytes. For each: "ids|begin end begin end ...|bytes", a line end, the
// decoded text of so many bytes, a line end.
#include <charconv>
#include <fstream>
#include <iostream>
#include <sstream>

#include "ulp/base/error.h"
#include "ulp/io/tokenizer/train_tokenizer.h"

namespace {

using namespace ulp::io;

void encode(const Tokenizer& tokenizer, const std::string& records) {
  for (size_t at = 0; at < records.size();) {
    const size_t end = std::min(records.find('\n', at), records.size());
    size_t size = 0;
    std::from_chars(records.data() + at, records.data() + end, size);
    const Encoding encoded = tokenizer.encode(std::string_view(records).substr(end + 1, size));
    at = end + 1 + size;
    for (const int64_t id : encoded.ids) std::cout << id << ' ';
    std::cout << '|';
    for (const TextRange& range : encoded.ranges) std::cout << range.begin << ' ' << range.end << ' ';
    const std::string decoded = tokenizer.decode(encoded.ids);
    std::cout << '|' << decoded.size() << '\n' << decoded << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string task = argc > 1 ? argv[1] : "";
  if (task == "train" && argc == 6) {
    const auto kind = ulp::require_word<TokenizerKind>("tokenizer_lines", "a kind", argv[2]);
    train_tokenizer_on(argv[3], {.kind = kind, .vocab_size = std::stoll(argv[4])}).save(argv[5]);
    return 0;
  }
  if (task != "encode" || argc != 4) {
    std::cerr << "usage: tokenizer_lines train KIND TEXT VOCABULARY OUT | encode TOKENIZER RECORDS\n";
    return 2;
  }
  std::ostringstream records;
  records << std::ifstream(argv[3], std::ios::binary).rdbuf();
  encode(Tokenizer::load(argv[2]), records.str());
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
