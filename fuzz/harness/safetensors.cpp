// The safetensors container: every tensor of a file that opens has the bytes that it says.
#include "ulp/base/safetensors.h"

#include "container_mutator.h"
#include "harness.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ulp::fuzz::MemoryFile input(data, size);
  ulp::fuzz::refused([&] {
    const ulp::SafetensorsFile file(input.path());
    size_t bytes = 0;
    for (const ulp::TensorEntry& tensor : file.tensors()) {
      ulp::fuzz::require(file.find(tensor.name) == &tensor, "every tensor to be found by its name");
      unsigned sum = 0;
      for (const std::byte value : tensor.bytes) sum += std::to_integer<unsigned>(value);
      ulp::fuzz::require(sum <= 255 * tensor.bytes.size(), "bytes");
      bytes += tensor.bytes.size();
    }
    ulp::fuzz::require(bytes < size, "no more bytes than the file has");
  });
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  static const ulp::fuzz::Vocabulary vocabulary = {
      .words = {"F32", "BF16", "I8", "F4", "F6_E2M3", "BOOL", "C64", "F8_E4M3", "I64", "__metadata__"},
      .fields = {{"dtype", "F4"}, {"shape", {1}}, {"data_offsets", {0, 1}}, {"__metadata__", {{"a", "b"}}}}};
  return ulp::fuzz::mutate_container(data, size, max_size, seed, vocabulary);
}
