#include "ulp/exchange/coreml/blobs.h"

#include <array>
#include <bit>
#include <cstring>

#include "ulp/base/error.h"

namespace ulp::exchange::coreml {

namespace {

static_assert(std::endian::native == std::endian::little, "the numbers of the file are written as they lie");

constexpr uint32_t kVersion = 2, kSentinel = 0xDEADBEEF;

/// BlobDataType; 0 for a type that has none here.
uint32_t code_of(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return 1;
    case at::kFloat:
      return 2;
    case at::kByte:
      return 3;
    case at::kChar:
      return 4;
    default:
      return 0;
  }
}

/// 64 bytes: numbers from the front, zeros behind.
class Record {
 public:
  template <typename Number>
  void put(Number number) {
    std::memcpy(bytes_.data() + used_, &number, sizeof number);
    used_ += sizeof number;
  }
  void write(const WireWriter::Sink& sink) const { sink(bytes_.data(), bytes_.size()); }

 private:
  std::array<char, 64> bytes_{};
  size_t used_ = 0;
};

}  // namespace

bool Blobs::holds(at::ScalarType type) {
  return code_of(type) != 0;
}

int64_t Blobs::add(const at::Tensor& tensor) {
  if (!holds(tensor.scalar_type()))
    fail("exchange.export_coreml", "expected weights of f32, f16, s8 or u8, got ",
         c10::toString(tensor.scalar_type()));
  const uint64_t place = (end_ + kAlignment - 1) / kAlignment * kAlignment;
  entries_.push_back({tensor.detach(), place});
  end_ = place + kAlignment + static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
  return static_cast<int64_t>(place);
}

void Blobs::write(const WireWriter::Sink& sink) const {
  static constexpr std::array<char, kAlignment> kZeros{};
  Record header;
  header.put(static_cast<uint32_t>(entries_.size()));
  header.put(kVersion);
  header.write(sink);
  uint64_t end = kAlignment;
  for (const auto& [tensor, place] : entries_) {
    if (place > end) sink(kZeros.data(), place - end);
    const at::Tensor dense = tensor.to(at::kCPU).contiguous();
    const uint64_t bytes = dense.nbytes();
    Record record;
    record.put(kSentinel);
    record.put(code_of(dense.scalar_type()));
    record.put(bytes);
    record.put(place + kAlignment);
    record.write(sink);
    sink(dense.const_data_ptr(), bytes);
    end = place + kAlignment + bytes;
  }
}

}  // namespace ulp::exchange::coreml
