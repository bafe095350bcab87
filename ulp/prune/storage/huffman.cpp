#include "ulp/prune/storage/huffman.h"

#include <algorithm>
#include <array>

namespace ulp::prune {
namespace {

constexpr size_t kSymbols = 256;

/// A leaf or a package of package-merge: the symbols in it, with repeats.
struct Coin {
  uint64_t weight;
  std::vector<uint16_t> symbols;
};

std::vector<Coin> paired(const std::vector<Coin>& coins) {
  std::vector<Coin> packages;
  for (size_t i = 0; i + 1 < coins.size(); i += 2) {
    Coin both{coins[i].weight + coins[i + 1].weight, coins[i].symbols};
    both.symbols.insert(both.symbols.end(), coins[i + 1].symbols.begin(), coins[i + 1].symbols.end());
    packages.push_back(std::move(both));
  }
  return packages;
}

struct SymbolEntry {
  uint8_t symbol, length;
};

/// For every sequence of `longest` bits, the symbol that it begins with.
std::vector<SymbolEntry> lookup_table(std::span<const uint8_t> lengths, std::span<const uint16_t> codes,
                                      int longest) {
  std::vector<SymbolEntry> table(size_t{1} << longest);
  for (size_t symbol = 0; symbol < lengths.size(); ++symbol) {
    const int length = lengths[symbol];
    if (length == 0) continue;
    const size_t first = static_cast<size_t>(codes[symbol]) << (longest - length);
    std::fill_n(table.begin() + static_cast<ptrdiff_t>(first), size_t{1} << (longest - length),
                SymbolEntry{static_cast<uint8_t>(symbol), static_cast<uint8_t>(length)});
  }
  return table;
}

}  // namespace

std::vector<uint8_t> huffman_lengths(std::span<const uint64_t> counts, int limit) {
  std::vector<Coin> leaves;
  for (size_t symbol = 0; symbol < counts.size(); ++symbol) {
    if (counts[symbol] > 0) leaves.push_back({counts[symbol], {static_cast<uint16_t>(symbol)}});
  }
  const auto lighter = [](const Coin& a, const Coin& b) { return a.weight < b.weight; };
  std::stable_sort(leaves.begin(), leaves.end(), lighter);
  std::vector<Coin> coins = leaves;
  for (int level = 1; level < limit; ++level) {
    const std::vector<Coin> packages = paired(coins);
    coins.clear();
    std::merge(leaves.begin(), leaves.end(), packages.begin(), packages.end(), std::back_inserter(coins),
               lighter);
  }
  std::vector<uint8_t> lengths(counts.size(), 0);
  for (size_t i = 0; i < 2 * (leaves.size() - 1); ++i) {
    for (const uint16_t symbol : coins[i].symbols) ++lengths[symbol];
  }
  return lengths;
}

std::vector<uint16_t> canonical_codes(std::span<const uint8_t> lengths) {
  std::array<uint32_t, kMostHuffmanBits + 2> next{};
  std::array<uint32_t, kMostHuffmanBits + 1> of_length{};
  for (const uint8_t length : lengths) {
    if (length > kMostHuffmanBits) throw CodesProblem{"a Huffman code is longer than 15 bits"};
    if (length > 0) ++of_length[length];
  }
  for (size_t length = 1; length <= kMostHuffmanBits; ++length) {
    next[length + 1] = (next[length] + of_length[length]) << 1;
  }
  if (next[kMostHuffmanBits + 1] != uint32_t{1} << (kMostHuffmanBits + 1)) {
    throw CodesProblem{"the lengths of a Huffman code make no complete code"};
  }
  std::vector<uint16_t> codes(lengths.size(), 0);
  for (size_t symbol = 0; symbol < lengths.size(); ++symbol) {
    if (lengths[symbol] > 0) codes[symbol] = static_cast<uint16_t>(next[lengths[symbol]]++);
  }
  return codes;
}

Bytes huffman_encode(std::span<const uint8_t> symbols) {
  std::array<uint64_t, kSymbols> counts{};
  for (const uint8_t symbol : symbols) ++counts[symbol];
  const auto used = [](uint64_t count) { return count > 0; };
  if (std::ranges::count_if(counts, used) < 2) return {};
  const std::vector<uint8_t> lengths = huffman_lengths(counts);
  const std::vector<uint16_t> codes = canonical_codes(lengths);
  size_t last = kSymbols - 1;
  while (lengths[last] == 0) --last;
  Bytes out;
  put_byte(out, last);
  BitWriter bits(out);
  for (size_t symbol = 0; symbol <= last; ++symbol) bits.put(lengths[symbol], 4);
  bits.finish();
  BitWriter body(out);
  for (const uint8_t symbol : symbols) body.put(codes[symbol], lengths[symbol]);
  body.finish();
  return out;
}

std::vector<uint8_t> huffman_decode(std::span<const std::byte> bytes, uint64_t count, int width) {
  ByteReader reader(bytes);
  const size_t last = reader.byte();
  if (last >= size_t{1} << width) {
    throw CodesProblem{"a Huffman code has the symbol " + std::to_string(last) + " of " +
                       std::to_string(width) + " bits"};
  }
  BitReader table(reader.take((last + 2) / 2));
  std::vector<uint8_t> lengths(last + 1);
  for (uint8_t& length : lengths) length = static_cast<uint8_t>(table.take(4));
  table.finish();
  const std::vector<uint16_t> codes = canonical_codes(lengths);
  const int longest = *std::ranges::max_element(lengths);
  const std::vector<SymbolEntry> entries = lookup_table(lengths, codes, longest);
  if (count > 8 * static_cast<uint64_t>(reader.left())) throw CodesProblem{"the codes end early"};
  BitReader body(reader.take(reader.left()));
  std::vector<uint8_t> symbols(count);
  for (uint8_t& symbol : symbols) {
    const SymbolEntry entry = entries[body.peek(longest)];
    symbol = entry.symbol;
    body.skip(entry.length);
  }
  body.finish();
  return symbols;
}

}  // namespace ulp::prune
