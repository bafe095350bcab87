#include <algorithm>
#include <queue>

#include "ulp/io/tokenizer/byte_words.h"
#include "ulp/io/tokenizer/token_model.h"

namespace ulp::io {

namespace {

/// A token of a word under way, in a list of those that are left.
struct Symbol {
  int64_t id = 0;
  TextRange range = {};
  int previous = -1, next = -1;
  bool gone = false;
};

/// The merge of a symbol with the one behind it.
struct Candidate {
  uint32_t rank;
  int place;
  int64_t result;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : place > other.place;
  }
};

}  // namespace

BytePairs::BytePairs(const TokenIds& vocabulary, Merges merges, Options options)
    : vocabulary_(vocabulary), merges_(std::move(merges)), options_(options) {
  for (int byte = 0; byte < 256; ++byte) {
    const char one[] = {static_cast<char>(byte)};
    bytes_.push_back(find_id(vocabulary, byte_characters({one, 1})).value_or(-1));
  }
}

void BytePairs::encode(std::span<const Character> word, Encoding& out) const {
  if (word.empty()) return;
  const std::string bytes = utf8_of(word);
  if (options_.whole_words) {
    if (const auto id = find_id(vocabulary_, byte_characters(bytes))) {
      out.ids.push_back(*id);
      out.ranges.push_back({word.front().begin, word.back().end});
      return;
    }
  }
  std::vector<Symbol> symbols;
  symbols.reserve(bytes.size());
  size_t at = 0;
  bool fuses = false;  // the last symbol is an unknown one
  for (const Character& character : word) {
    std::string own;
    append_utf8(own, character.code);
    for (size_t i = 0; i < own.size(); ++i, ++at) {
      const int64_t begin = character.begin + static_cast<int64_t>(i);
      const TextRange range{begin, begin + 1};
      const int64_t id = bytes_[static_cast<uint8_t>(bytes[at])];
      if (id >= 0) {
        symbols.push_back({.id = id, .range = range});
      } else if (fuses && options_.fuse_unknown) {
        symbols.back().range.end = range.end;
      } else if (options_.unknown) {
        symbols.push_back({.id = *options_.unknown, .range = range});
      }
      fuses = id < 0 && options_.unknown.has_value();
    }
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](int place) {
    if (place < 0 || symbols[static_cast<size_t>(place)].next < 0) return;
    const Symbol& left = symbols[static_cast<size_t>(place)];
    const auto found = merges_.find(pair_of(left.id, symbols[static_cast<size_t>(left.next)].id));
    if (found != merges_.end()) queue.push({found->second.rank, place, found->second.result});
  };
  const auto count = static_cast<int>(symbols.size());
  for (int i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  for (int i = 0; i < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[static_cast<size_t>(top.place)];
    if (left.gone || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    const auto still = merges_.find(pair_of(left.id, right.id));
    if (still == merges_.end() || still->second.result != top.result) continue;  // one of them merged since
    left.id = top.result;
    left.range.end = right.range.end;
    right.gone = true;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = top.place;
    consider(left.previous);
    consider(top.place);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.gone) continue;
    out.ids.push_back(symbol.id);
    out.ranges.push_back(symbol.range);
  }
}

}  // namespace ulp::io
