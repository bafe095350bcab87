// Compressed models, and each coded tensor by itself: few changes of a file have its checksum right.
#include <cstring>

#include "array.h"
#include "container_mutator.h"
#include "harness.h"
#include "ulp/base/safetensors.h"
#include "ulp/prune/storage/compressed_file.h"

namespace {

using ulp::fuzz::read_all;
using ulp::fuzz::refused;
using ulp::fuzz::require;

constexpr uint64_t kMostBytes = 4 << 20;

void decode(std::span<const std::byte> bytes) {
  refused([&] {
    const auto decoded = ulp::prune::decode_tensor(bytes, kMostBytes);
    read_all(decoded.tensor);
    require(decoded.tensor.nbytes() <= kMostBytes, "no more bytes than the limit");
    require(decoded.account.bytes.total() == static_cast<int64_t>(bytes.size()), "an account of every byte");
    const auto again = ulp::prune::encode_tensor(decoded.tensor, {.coder = ulp::prune::EntropyCoder::none});
    const auto twice = ulp::prune::decode_tensor(again.bytes, kMostBytes).tensor;
    require(std::memcmp(twice.const_data_ptr(), decoded.tensor.const_data_ptr(), twice.nbytes()) == 0,
            "the same bits when written and read again");
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ulp::fuzz::MemoryFile file(data, size);
  refused([&] {
    for (const auto& [name, tensor] : ulp::prune::load_compressed(file.path(), kMostBytes).tensors)
      read_all(tensor);
  });
  refused([&] {
    const ulp::SafetensorsFile container(file.path());
    for (const ulp::TensorEntry& entry : container.tensors()) decode(entry.bytes);
  });
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  static const ulp::fuzz::Vocabulary vocabulary = {
      .words = {"F32", "U8", "I64", "BOOL", "F16", "BF16"},
      .fields = {
          {"version", 1}, {"crc32", 0}, {"aliases", {{"tied", "free"}}}, {"shape", {2, 3}}, {"dtype", "U8"}}};
  return ulp::fuzz::mutate_container(data, size, max_size, seed, vocabulary);
}
