// Text data: one long text, and labelled lines.
#include <array>

#include "harness.h"
#include "ulp/io/text_dataset.h"

namespace {

void gather(const ulp::io::TextDataset& dataset) {
  const std::array<int64_t, 2> samples = {0, dataset.size() - 1};
  const ulp::io::TextBatch batch = dataset.gather(samples);
  ulp::fuzz::require(batch.tokens.size(0) == 2 && batch.tokens.size(1) == dataset.length(), "two texts");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ulp::fuzz::MemoryFile file(data, size);
  ulp::fuzz::refused([&] { gather(ulp::io::load_text(file.path(), 8)); });
  ulp::fuzz::refused([&] { gather(ulp::io::load_labelled_text(file.path(), 16)); });
  return 0;
}
