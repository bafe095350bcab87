// Archives of torch.export: what is imported is a graph that prints. The structural changes are those of the entries within: of the
// JSON as JSON, of the others as bytes.
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "archive.h"
#include "harness.h"
#include "json_mutator.h"
#include "ulp/exchange/import_pt2.h"
#include "ulp/graph/graph_module.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kMostBytes = int64_t{4} << 20;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ulp::fuzz::refused([&] {
    const auto model = ulp::exchange::import_pt2(bytes, "model.pt2", {.longest = 8, .max_bytes = kMostBytes});
    std::ostringstream listing;
    listing << std::as_const(*model).graph();
    ulp::fuzz::require(!listing.str().empty(), "a graph that prints");
  });
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  using namespace ulp::fuzz;
  Random random(seed);
  std::vector<ArchiveEntry> entries = entries_of(MemoryFile(data, size).path());
  if (entries.empty() || below(random, 8) == 0) return LLVMFuzzerMutate(data, size, max_size);
  ArchiveEntry& entry = entries[below(random, entries.size())];
  nlohmann::json document = nlohmann::json::parse(entry.bytes, nullptr, /*allow_exceptions=*/false);
  if (entry.name.ends_with(".json") && !document.is_discarded()) {
    static const Vocabulary kWords = {
        .words = {"as_tensor", "as_int", "as_ints", "as_sym_int", "as_none", "x", "ids", "weight_0",
                  "torch.ops.aten.zeros.default", "torch.ops.aten.sym_size.int", "_operator.mul",
                  "_operator.pow", "Symbol('s0', integer=True)"},
        .fields = {{"as_int", 4}, {"as_float", 0.5}, {"as_none", true}, {"as_ints", {1, 2}}}};
    for (size_t i = 0; i <= below(random, 3); ++i) mutate_json(document, kWords, random);
    const std::string text = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    entry.bytes.assign(text.begin(), text.end());
  } else {
    const size_t had = entry.bytes.size();
    entry.bytes.resize(had + 64);
    entry.bytes.resize(LLVMFuzzerMutate(entry.bytes.data(), had, entry.bytes.size()));
  }
  const Bytes made = archive_of(entries, ZIP_CM_STORE);
  if (made.empty() || made.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, made.data(), made.size());
  return made.size();
}
