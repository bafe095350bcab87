// Choosing the smallest form of a tensor.
#include <algorithm>
#include <unordered_set>

#include "ulp/base/error.h"
#include "ulp/libtorch/safetensors_tensor.h"
#include "ulp/prune/storage/encoded_tensor_parts.h"
#include "ulp/prune/storage/stream.h"

namespace ulp::prune {
namespace {

constexpr const char* kEncodeTensorWhere = "prune.encode_tensor";

/// The elements to be stored, as bits.
struct StoredElements {
  at::ScalarType type;
  size_t size;
  std::vector<uint64_t> bits;
};

/// Elements written in one form.
struct Values {
  Bytes codebook, streams;
  Narrow narrow = Narrow::none;
  size_t entries = 0;
  size_t total() const { return codebook.size() + streams.size(); }
};

/// The different elements in rising order; none where they are more than a codebook holds.
std::vector<uint64_t> different(const std::vector<uint64_t>& elements) {
  std::unordered_set<uint64_t> seen;
  for (const uint64_t bits : elements) {
    if (seen.insert(bits).second && seen.size() > kMostEntries) return {};
  }
  std::vector<uint64_t> sorted(seen.begin(), seen.end());
  std::ranges::sort(sorted);
  return sorted;
}

Narrow narrowest(at::ScalarType type, std::span<const uint64_t> elements) {
  if (type != at::kFloat) return Narrow::none;
  for (const Narrow narrow : {Narrow::bf16, Narrow::f16}) {
    if (survive(elements, narrow)) return narrow;
  }
  return Narrow::none;
}

Values with_codebook(const StoredElements& elements, const std::vector<uint64_t>& entries,
                     EntropyCoder coder) {
  Values values;
  values.narrow = narrowest(elements.type, entries);
  values.entries = entries.size();
  const size_t size = values.narrow == Narrow::none ? elements.size : sizeof(uint16_t);
  put_byte(values.codebook, entries.size() - 1);
  for (const uint64_t entry : entries) {
    for (size_t i = 0; i < size; ++i) put_byte(values.codebook, narrowed(entry, values.narrow) >> 8 * i);
  }
  std::vector<uint8_t> codes(elements.bits.size());
  std::ranges::transform(elements.bits, codes.begin(), [&](uint64_t bits) {
    return static_cast<uint8_t>(std::ranges::lower_bound(entries, bits) - entries.begin());
  });
  put_stream(values.streams, codes, code_bits(entries.size()), coder);
  return values;
}

Values as_they_are(const StoredElements& elements, EntropyCoder coder) {
  Values values;
  values.narrow = narrowest(elements.type, elements.bits);
  const size_t size = values.narrow == Narrow::none ? elements.size : sizeof(uint16_t);
  std::vector<uint8_t> plane(elements.bits.size());
  for (size_t i = 0; i < size; ++i) {
    std::ranges::transform(elements.bits, plane.begin(), [&](uint64_t bits) {
      return static_cast<uint8_t>(narrowed(bits, values.narrow) >> 8 * i);
    });
    put_stream(values.streams, plane, 8, coder);
  }
  return values;
}

Values smallest_values(const StoredElements& elements, EntropyCoder coder) {
  Values best = as_they_are(elements, coder);
  const std::vector<uint64_t> entries = different(elements.bits);
  if (entries.empty()) return best;
  Values shared = with_codebook(elements, entries, coder);
  return shared.total() < best.total() ? shared : best;
}

/// Positions written in one form.
struct Placed {
  PositionForm form;
  Bytes bytes;
};

/// The forms that the options allow, without dense.
std::vector<PositionForm> sparse_forms(const CodeOptions& options) {
  std::vector<PositionForm> forms = {{Positions::bitmask}};
  for (int bits = kFewestGapBits; bits <= kMostGapBits; ++bits) {
    if (!options.gap_bits || *options.gap_bits == bits) forms.push_back({Positions::gaps, bits});
  }
  forms.push_back({Positions::csr});
  const auto unwanted = [&](const PositionForm& form) {
    return options.positions && *options.positions != form.kind;
  };
  std::erase_if(forms, unwanted);
  return forms;
}

std::optional<Placed> smallest_positions(const std::vector<int64_t>& positions, const Grid& grid,
                                         const CodeOptions& options) {
  std::optional<Placed> best;
  for (const PositionForm& form : sparse_forms(options)) {
    if (!can_hold(form, grid, positions.size())) continue;
    Placed placed{form, {}};
    put_positions(placed.bytes, positions, form, grid, options.coder);
    if (!best || placed.bytes.size() < best->bytes.size()) best = std::move(placed);
  }
  return best;
}

EncodedTensor assemble(const at::Tensor& tensor, const Values& values, const Placed& placed,
                       uint64_t stored) {
  EncodedTensor coded;
  const Forms forms{placed.form, values.entries > 0, values.narrow};
  put_byte(coded.bytes, static_cast<uint64_t>(tensor.scalar_type()));
  put_integer(coded.bytes, static_cast<uint64_t>(tensor.dim()));
  for (const int64_t size : tensor.sizes()) put_integer(coded.bytes, static_cast<uint64_t>(size));
  put_byte(coded.bytes, forms.byte());
  if (placed.form.kind != Positions::dense) put_integer(coded.bytes, stored);
  const size_t header = coded.bytes.size();
  put_bytes(coded.bytes, values.codebook);
  put_bytes(coded.bytes, placed.bytes);
  put_bytes(coded.bytes, values.streams);
  coded.account = {.name = {},
                   .dtype = libtorch::safetensors_word(tensor.scalar_type()),
                   .shape = tensor.sizes().vec(),
                   .elements = tensor.numel(),
                   .stored = static_cast<int64_t>(stored),
                   .dense_bytes = static_cast<int64_t>(tensor.nbytes()),
                   .positions = {},
                   .values = {},
                   .bytes = {.values = static_cast<int64_t>(values.streams.size()),
                             .codebook = static_cast<int64_t>(values.codebook.size()),
                             .positions = static_cast<int64_t>(placed.bytes.size()),
                             .header = static_cast<int64_t>(header)}};
  describe(coded.account, forms, values.entries);
  return coded;
}

at::Tensor checked(const at::Tensor& tensor) {
  if (!tensor.defined()) fail(kEncodeTensorWhere, "expected a tensor, got none");
  if (tensor.layout() != at::kStrided || tensor.is_meta())
    fail(kEncodeTensorWhere, "expected a dense tensor");
  if (libtorch::safetensors_word(tensor.scalar_type()) == nullptr)
    fail(kEncodeTensorWhere, "expected a dtype that safetensors files have, got ", tensor.scalar_type());
  if (static_cast<size_t>(tensor.dim()) > kMostDimensions)
    fail(kEncodeTensorWhere, "expected at most ", kMostDimensions, " dimensions, got ", tensor.dim());
  return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
}

}  // namespace

void CodeOptions::validate() const {
  if (gap_bits && (*gap_bits < kFewestGapBits || *gap_bits > kMostGapBits))
    fail(kEncodeTensorWhere, "expected gap_bits in [", kFewestGapBits, ", ", kMostGapBits, "], got ",
         *gap_bits);
}

EncodedTensor encode_tensor(const at::Tensor& given, const CodeOptions& options) {
  options.validate();
  const at::Tensor tensor = checked(given);
  const auto count = static_cast<size_t>(tensor.numel());
  StoredElements all{tensor.scalar_type(), static_cast<size_t>(tensor.element_size()),
                     std::vector<uint64_t>(count)};
  StoredElements stored{all.type, all.size, {}};
  std::vector<int64_t> positions;
  for (size_t i = 0; i < count; ++i) {
    all.bits[i] = bits_at(tensor.const_data_ptr(), all.size, i);
    if (all.bits[i] == 0) continue;
    stored.bits.push_back(all.bits[i]);
    positions.push_back(static_cast<int64_t>(i));
  }
  const Grid grid = grid_of(tensor.sizes().vec(), count);
  std::optional<EncodedTensor> best;
  if (!options.positions || *options.positions == Positions::dense || count == 0)
    best = assemble(tensor, smallest_values(all, options.coder), {{Positions::dense}, {}}, count);
  if (count > 0) {
    if (const auto placed = smallest_positions(positions, grid, options)) {
      EncodedTensor sparse =
          assemble(tensor, smallest_values(stored, options.coder), *placed, positions.size());
      if (!best || sparse.bytes.size() < best->bytes.size()) best = std::move(sparse);
    }
  }
  if (!best)
    fail(kEncodeTensorWhere, "expected rows of at most 65536 elements for positions csr, got ", grid.columns);
  return *std::move(best);
}

}  // namespace ulp::prune
