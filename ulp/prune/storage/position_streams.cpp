#include "ulp/prune/storage/position_streams.h"

#include <algorithm>
#include <limits>

#include "ulp/prune/storage/stream.h"

namespace ulp::prune {
namespace {

constexpr uint64_t kMostColumns = uint64_t{1} << 16;
constexpr int kColumnBytes = 2, kEndBytes = 4;

void put_bitmask(Bytes& out, std::span<const int64_t> positions, const Grid& grid, EntropyCoder coder) {
  std::vector<uint8_t> mask((grid.elements() + 7) / 8, 0);
  for (const int64_t at : positions) mask[at / 8] |= static_cast<uint8_t>(128 >> at % 8);
  put_stream(out, mask, 8, coder);
}

std::vector<uint8_t> take_bitmask(ByteReader& reader, uint64_t elements) {
  const std::vector<uint8_t> bytes = take_stream(reader, (elements + 7) / 8, 8);
  std::vector<uint8_t> mask(elements);
  for (uint64_t i = 0; i < elements; ++i) mask[i] = bytes[i / 8] >> (7 - i % 8) & 1;
  if (elements % 8 != 0 && (bytes.back() & (255 >> elements % 8)) != 0) {
    throw CodesProblem{"a bitmask has bits past the last element"};
  }
  return mask;
}

void put_gaps(Bytes& out, std::span<const int64_t> positions, int width, EntropyCoder coder) {
  const int64_t filler = (int64_t{1} << width) - 1;
  std::vector<uint8_t> codes;
  codes.reserve(positions.size());
  int64_t next = 0;
  for (const int64_t at : positions) {
    for (; at - next >= filler; next += filler) codes.push_back(static_cast<uint8_t>(filler));
    codes.push_back(static_cast<uint8_t>(at - next));
    next = at + 1;
  }
  put_integer(out, codes.size());
  put_stream(out, codes, width, coder);
}

uint64_t take_gap_count(ByteReader& reader, uint64_t elements) {
  const uint64_t count = reader.integer();
  if (count > elements) {
    throw CodesProblem{"expected at most " + std::to_string(elements) + " gaps, got " +
                       std::to_string(count)};
  }
  return count;
}

std::vector<uint8_t> take_gaps(ByteReader& reader, int width, uint64_t elements) {
  const uint64_t count = take_gap_count(reader, elements);
  const std::vector<uint8_t> codes = take_stream(reader, count, width);
  const uint8_t filler = static_cast<uint8_t>((1 << width) - 1);
  std::vector<uint8_t> mask(elements, 0);
  uint64_t next = 0;
  for (const uint8_t code : codes) {
    next += code;
    if (code == filler) continue;
    if (next >= elements) throw CodesProblem{"gaps lead past the last element"};
    mask[next++] = 1;
  }
  if (next > elements) throw CodesProblem{"gaps lead past the last element"};
  return mask;
}

/// Byte by byte: all the low ones, then the next.
template <typename Number>
void put_numbers(Bytes& out, const std::vector<Number>& numbers, int bytes, EntropyCoder coder) {
  std::vector<uint8_t> plane(numbers.size());
  for (int i = 0; i < bytes; ++i) {
    for (size_t at = 0; at < plane.size(); ++at) plane[at] = static_cast<uint8_t>(numbers[at] >> 8 * i);
    put_stream(out, plane, 8, coder);
  }
}

template <typename Number>
std::vector<Number> take_numbers(ByteReader& reader, uint64_t count, int bytes) {
  std::vector<Number> numbers(count, 0);
  for (int i = 0; i < bytes; ++i) {
    const std::vector<uint8_t> plane = take_stream(reader, count, 8);
    for (size_t at = 0; at < count; ++at) numbers[at] |= static_cast<Number>(Number{plane[at]} << 8 * i);
  }
  return numbers;
}

void put_csr(Bytes& out, std::span<const int64_t> positions, const Grid& grid, EntropyCoder coder) {
  std::vector<uint32_t> ends;
  std::vector<uint16_t> columns;
  ends.reserve(grid.rows);
  columns.reserve(positions.size());
  const auto width = static_cast<int64_t>(grid.columns);
  for (const int64_t at : positions) {
    ends.resize(static_cast<size_t>(at / width), static_cast<uint32_t>(columns.size()));
    columns.push_back(static_cast<uint16_t>(at % width));
  }
  ends.resize(grid.rows, static_cast<uint32_t>(columns.size()));
  put_numbers(out, ends, kEndBytes, coder);
  put_numbers(out, columns, kColumnBytes, coder);
}

std::vector<uint8_t> take_csr(ByteReader& reader, uint64_t stored, const Grid& grid) {
  const auto ends = take_numbers<uint32_t>(reader, grid.rows, kEndBytes);
  if (!std::ranges::is_sorted(ends) || (ends.empty() ? 0 : ends.back()) != stored) {
    throw CodesProblem{"the ends of rows do not rise to the count of stored elements"};
  }
  const auto columns = take_numbers<uint16_t>(reader, stored, kColumnBytes);
  std::vector<uint8_t> mask(grid.elements(), 0);
  for (uint64_t row = 0, at = 0; row < grid.rows; ++row) {
    for (uint64_t free = 0; at < ends[row]; ++at) {
      if (columns[at] < free || columns[at] >= grid.columns)
        throw CodesProblem{"the columns of a row do not rise inside it"};
      mask[row * grid.columns + columns[at]] = 1;
      free = columns[at] + uint64_t{1};
    }
  }
  return mask;
}

void check_csr(const PositionForm& form, const Grid& grid, uint64_t stored) {
  if (!can_hold(form, grid, stored))
    throw CodesProblem{"rows of more than 65536 elements have no columns of 16 bits"};
}

}  // namespace

bool can_hold(const PositionForm& form, const Grid& grid, uint64_t stored) {
  return form.kind != Positions::csr ||
         (grid.columns <= kMostColumns && stored <= std::numeric_limits<uint32_t>::max());
}

void put_positions(Bytes& out, std::span<const int64_t> positions, const PositionForm& form, const Grid& grid,
                   EntropyCoder coder) {
  if (form.kind == Positions::bitmask) put_bitmask(out, positions, grid, coder);
  if (form.kind == Positions::gaps) put_gaps(out, positions, form.gap_bits, coder);
  if (form.kind == Positions::csr) put_csr(out, positions, grid, coder);
}

std::vector<uint8_t> take_positions(ByteReader& reader, uint64_t stored, const PositionForm& form,
                                    const Grid& grid) {
  std::vector<uint8_t> mask;
  if (form.kind == Positions::dense) mask.assign(grid.elements(), 1);
  if (form.kind == Positions::bitmask) mask = take_bitmask(reader, grid.elements());
  if (form.kind == Positions::gaps) mask = take_gaps(reader, form.gap_bits, grid.elements());
  if (form.kind == Positions::csr) {
    check_csr(form, grid, stored);
    mask = take_csr(reader, stored, grid);
  }
  const auto found = static_cast<uint64_t>(std::ranges::count(mask, uint8_t{1}));
  if (found != stored) {
    throw CodesProblem{"expected " + std::to_string(stored) + " positions, got " + std::to_string(found)};
  }
  return mask;
}

void skip_positions(ByteReader& reader, uint64_t stored, const PositionForm& form, const Grid& grid) {
  if (form.kind == Positions::bitmask) skip_stream(reader, (grid.elements() + 7) / 8, 8);
  if (form.kind == Positions::gaps)
    skip_stream(reader, take_gap_count(reader, grid.elements()), form.gap_bits);
  if (form.kind != Positions::csr) return;
  check_csr(form, grid, stored);
  for (int i = 0; i < kEndBytes; ++i) skip_stream(reader, grid.rows, 8);
  for (int i = 0; i < kColumnBytes; ++i) skip_stream(reader, stored, 8);
}

}  // namespace ulp::prune
