#include "ulp/io/tokenizer/pair_trainer.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>

#include "ulp/io/tokenizer/token_model.h"

namespace ulp::io {

namespace {

struct Word {
  std::vector<int64_t> tokens = {};
  int64_t count = 0;
};

/// A pair that may be merged next, and the words that it is in.
struct Pending {
  int64_t count = 0;
  uint64_t pair = 0;
  std::vector<uint32_t> words = {};
  bool operator<(const Pending& other) const {  // of equal counts the lowest ids come first
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class DistillationTask {
 public:
  explicit DistillationTask(const PairTraining& options) : options_(options) {}

  LearnedPairs learn(const std::map<std::string, int64_t>& words) {
    for (const std::string& token : options_.special) id_of(token);
    choose_alphabet(words);
    split(words);
    merge_all();
    return {std::move(tokens_), ranked()};
  }

 private:
  int64_t id_of(const std::string& token) {
    const auto [found, fresh] = ids_.try_emplace(token, static_cast<int64_t>(tokens_.size()));
    if (fresh) tokens_.push_back(token);
    return found->second;
  }

  void choose_alphabet(const std::map<std::string, int64_t>& words) {
    std::map<char32_t, int64_t> counts;
    for (const auto& [word, count] : words)
      for (const Character& character : characters_of(kTrainTokenizerWhere, word))
        counts[character.code] += count;
    for (const char32_t code : options_.alphabet) counts[code] = std::numeric_limits<int64_t>::max();
    std::vector<std::pair<char32_t, int64_t>> kept(counts.begin(), counts.end());
    const auto most = options_.most_characters ? static_cast<size_t>(*options_.most_characters) : kept.size();
    if (kept.size() > most) {
      std::stable_sort(kept.begin(), kept.end(),
                       [](const auto& a, const auto& b) { return a.second > b.second; });
      kept.resize(most);
      std::sort(kept.begin(), kept.end());
    }
    for (const auto& [code, count] : kept) {
      std::string token;
      append_utf8(token, code);
      id_of(token);
    }
  }

  /// Words as tokens of one character, and where each pair of neighbours is.
  void split(const std::map<std::string, int64_t>& words) {
    std::unordered_map<uint64_t, std::vector<uint32_t>> places;
    for (const auto& [word, count] : words) {
      Word made{.count = count};
      bool first = true;
      for (const Character& character : characters_of(kTrainTokenizerWhere, word)) {
        std::string token;
        append_utf8(token, character.code);
        if (ids_.contains(token)) made.tokens.push_back(id_of(first ? token : options_.prefix + token));
        first = false;
      }
      const auto place = static_cast<uint32_t>(words_.size());
      for (size_t i = 1; i < made.tokens.size(); ++i) {
        const uint64_t pair = pair_of(made.tokens[i - 1], made.tokens[i]);
        counts_[pair] += count;
        std::vector<uint32_t>& at = places[pair];
        if (at.empty() || at.back() != place) at.push_back(place);
      }
      words_.push_back(std::move(made));
    }
    for (auto& [pair, at] : places)
      if (counts_[pair] > 0) queue_.push({counts_[pair], pair, std::move(at)});
  }

  void merge_all() {
    while (static_cast<int64_t>(tokens_.size()) < options_.vocab_size && !queue_.empty()) {
      Pending top = std::move(const_cast<Pending&>(queue_.top()));
      queue_.pop();
      if (top.count != counts_[top.pair]) {  // words changed since
        top.count = counts_[top.pair];
        if (top.count > 0) queue_.push(std::move(top));
        continue;
      }
      if (top.count < std::max<int64_t>(options_.min_frequency, 1)) break;
      merge(top);
    }
  }

  void merge(const Pending& top) {
    const auto left = static_cast<int64_t>(top.pair >> 32),
               right = static_cast<int64_t>(top.pair & 0xFFFFFFFF);
    const std::string& end = tokens_[static_cast<size_t>(right)];
    const bool prefixed = !options_.prefix.empty() && end.starts_with(options_.prefix);
    const int64_t joint =
        id_of(tokens_[static_cast<size_t>(left)] + (prefixed ? end.substr(options_.prefix.size()) : end));
    merges_.push_back(top.pair);
    std::map<uint64_t, std::vector<uint32_t>> fresh;
    for (const uint32_t place : top.words) merge_in(place, left, right, joint, fresh);
    for (auto& [pair, places] : fresh) {
      const int64_t count = counts_[pair];
      if (count > 0) queue_.push({count, pair, std::move(places)});
    }
  }

  void merge_in(uint32_t place, int64_t left, int64_t right, int64_t joint,
                std::map<uint64_t, std::vector<uint32_t>>& fresh) {
    Word& word = words_[place];
    const auto change = [&](int64_t a, int64_t b, int64_t by) {
      const uint64_t pair = pair_of(a, b);
      counts_[pair] += by * word.count;
      if (by < 0) return;
      std::vector<uint32_t>& places = fresh[pair];
      if (places.empty() || places.back() != place) places.push_back(place);
    };
    std::vector<int64_t> merged;
    merged.reserve(word.tokens.size());
    for (size_t i = 0; i < word.tokens.size(); ++i) {
      const bool pair = i + 1 < word.tokens.size() && word.tokens[i] == left && word.tokens[i + 1] == right;
      if (!pair) {
        merged.push_back(word.tokens[i]);
        continue;
      }
      if (!merged.empty()) {
        change(merged.back(), left, -1);
        change(merged.back(), joint, 1);
      }
      if (i + 2 < word.tokens.size()) {
        change(right, word.tokens[i + 2], -1);
        change(joint, word.tokens[i + 2], 1);
      }
      merged.push_back(joint);
      ++i;
    }
    word.tokens = std::move(merged);
  }

  /// A pair that was merged twice has the later rank.
  std::vector<std::pair<int64_t, int64_t>> ranked() const {
    std::unordered_map<uint64_t, size_t> last;
    for (size_t i = 0; i < merges_.size(); ++i) last[merges_[i]] = i;
    std::vector<std::pair<int64_t, int64_t>> kept;
    for (size_t i = 0; i < merges_.size(); ++i) {
      if (last[merges_[i]] == i)
        kept.emplace_back(static_cast<int64_t>(merges_[i] >> 32),
                          static_cast<int64_t>(merges_[i] & 0xFFFFFFFF));
    }
    return kept;
  }

  const PairTraining& options_;
  std::vector<std::string> tokens_;
  TokenIds ids_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, int64_t> counts_;
  std::priority_queue<Pending> queue_;
  std::vector<uint64_t> merges_;
};

}  // namespace

LearnedPairs learn_pairs(const std::map<std::string, int64_t>& words, const PairTraining& options) {
  return DistillationTask(options).learn(words);
}

}  // namespace ulp::io
