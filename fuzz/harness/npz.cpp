// NumPy's archives. The structural changes are those of the arrays within: an archive with a wrong checksum says
// little.
#include <cstring>
#include <string>
#include <vector>

#include "archive.h"
#include "array.h"
#include "harness.h"
#include "json_mutator.h"
#include "ulp/io/npy.h"

using ulp::fuzz::below;
using ulp::fuzz::Bytes;
using ulp::fuzz::Random;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ulp::fuzz::MemoryFile file(data, size);
  ulp::fuzz::refused([&] {
    for (const auto& [name, array] : ulp::io::load_npz(file.path())) ulp::fuzz::read_all(array);
  });
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  Random random(seed);
  std::vector<ulp::fuzz::ArchiveEntry> entries =
      ulp::fuzz::entries_of(ulp::fuzz::MemoryFile(data, size).path());
  if (entries.empty() || below(random, 4) == 0) return LLVMFuzzerMutate(data, size, max_size);
  ulp::fuzz::ArchiveEntry& entry = entries[below(random, entries.size())];
  const size_t had = entry.bytes.size();
  entry.bytes.resize(had + 64);
  entry.bytes.resize(LLVMFuzzerMutate(entry.bytes.data(), had, entry.bytes.size()));
  const Bytes made = ulp::fuzz::archive_of(entries);
  if (made.empty() || made.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, made.data(), made.size());
  return made.size();
}
