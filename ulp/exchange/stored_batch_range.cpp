#include "ulp/exchange/stored_batch_range.h"

#include <sstream>

#include "ulp/base/error.h"

namespace ulp::exchange {

namespace {

constexpr const char* kBatchRangeKey = "ulp.batch_range";

}  // namespace

void store_batch_range(const BatchRange& range, std::map<std::string, std::string>& metadata) {
  if (!range.bounded()) return;
  std::string& text = metadata[kBatchRangeKey] = std::to_string(range.min);
  if (range.max != BatchRange::kAny) text += ' ' + std::to_string(range.max);
}

BatchRange stored_batch_range(const std::map<std::string, std::string>& metadata, const char* where) {
  BatchRange range;
  const auto stored = metadata.find(kBatchRangeKey);
  if (stored == metadata.end()) return range;
  std::istringstream text(stored->second);
  text >> range.min;
  bool good = !text.fail() && range.min >= 0;
  if (good && !(text >> std::ws).eof()) {
    text >> range.max;
    good = !text.fail() && (text >> std::ws).eof() && range.max >= std::max<int64_t>(range.min, 1);
  }
  if (!good)
    fail_file(where, "expected one or two batch sizes as '", kBatchRangeKey, "' of the metadata, got '",
              stored->second, "'");
  return range;
}

}  // namespace ulp::exchange
