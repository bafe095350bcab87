#include "ulp/exchange/onnx/external.h"

#include <array>

namespace ulp::exchange::onnx {

namespace {

constexpr uint64_t kSmallest = 1024, kPage = 4096;

}  // namespace

void move_out(Model& model, const std::string& file) {
  uint64_t end = 0;
  model.data_file = file;
  for (Initializer& one : model.initializers) {
    const uint64_t bytes = byte_count(one);
    if (bytes < kSmallest) continue;
    const uint64_t begin = (end + kPage - 1) / kPage * kPage;
    one.offset = static_cast<int64_t>(begin);
    end = begin + bytes;
  }
}

void write_moved(const Model& model, const WireWriter::Sink& sink) {
  static constexpr std::array<char, kPage> kZeros{};
  uint64_t end = 0;
  for (const Initializer& one : model.initializers) {
    if (one.offset < 0) continue;
    const auto begin = static_cast<uint64_t>(one.offset);
    if (begin > end) sink(kZeros.data(), begin - end);
    const at::Tensor bytes = dense(one.data);
    sink(bytes.const_data_ptr(), byte_count(one));
    end = begin + byte_count(one);
  }
}

}  // namespace ulp::exchange::onnx
