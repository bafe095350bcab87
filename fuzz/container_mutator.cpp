#include "container_mutator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include "container.h"
#include "harness.h"
#include "ulp/base/safetensors.h"

namespace ulp::fuzz {
namespace {

using Json = nlohmann::json;
using test::Container;

constexpr const char* kMetadata = "__metadata__";
constexpr uint64_t kMostTensorBytes = 1 << 18;

/// One tensor of the header, where it is as it should be.
struct Entry {
  Json* json;
  uint64_t begin, end;
};

std::optional<uint64_t> whole(const Json& json) {
  if (!json.is_number_unsigned()) return std::nullopt;
  return json.get<uint64_t>();
}

std::vector<Entry> entries_of(Container& file) {
  std::vector<Entry> entries;
  for (auto& [name, json] : file.header.items()) {
    if (name == kMetadata || !json.is_object()) continue;
    const Json offsets = json.value("data_offsets", Json());
    if (!offsets.is_array() || offsets.size() != 2) continue;
    const auto begin = whole(offsets[0]), end = whole(offsets[1]);
    if (begin && end && *begin <= *end && *end <= file.data.size()) entries.push_back({&json, *begin, *end});
  }
  std::ranges::sort(entries, {}, &Entry::begin);
  return entries;
}

/// The bytes that dtype and shape ask for; none where they make no tensor, or a large one.
std::optional<uint64_t> bytes_of(const Json& json) {
  const Json shape = json.value("shape", Json()), dtype = json.value("dtype", Json());
  if (!shape.is_array() || !dtype.is_string()) return std::nullopt;
  uint64_t bytes = safetensors_element_size(dtype.get<std::string>());
  for (const Json& size : shape) {
    const auto extent = whole(size);
    if (!extent || *extent > kMostTensorBytes) return std::nullopt;
    bytes *= *extent;
    if (bytes > kMostTensorBytes) return std::nullopt;
  }
  return bytes;
}

/// Gives each tensor as many bytes as its dtype and shape ask for: what it had, repeated or cut.
void fit_data(Container& file) {
  std::string data;
  for (const Entry& entry : entries_of(file)) {
    const std::string had = file.data.substr(entry.begin, entry.end - entry.begin);
    const uint64_t wanted = bytes_of(*entry.json).value_or(had.size());
    const uint64_t begin = data.size();
    while (data.size() < begin + wanted) {
      data += had.empty() ? std::string(1, '\0') : had.substr(0, begin + wanted - data.size());
    }
    (*entry.json)["data_offsets"] = {begin, begin + wanted};
  }
  file.data = std::move(data);
}

/// The JSON texts in the metadata, taken out of the header and put back.
class Texts {
 public:
  explicit Texts(Json& header) {
    if (!header.contains(kMetadata) || !header[kMetadata].is_object()) return;
    for (auto& [name, value] : header[kMetadata].items()) {
      if (!value.is_string()) continue;
      Json parsed = Json::parse(value.get<std::string>(), nullptr, /*allow_exceptions=*/false);
      if (parsed.is_structured()) found_.push_back({&value, std::move(parsed)});
    }
  }
  ~Texts() {
    for (Text& text : found_) {
      *text.place = text.json.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
  }
  Texts(const Texts&) = delete;
  Texts& operator=(const Texts&) = delete;

  bool empty() const { return found_.empty(); }
  size_t size() const { return found_.size(); }
  Json& operator[](size_t index) { return found_[index].json; }

 private:
  struct Text {
    Json* place;
    Json json;
  };
  std::vector<Text> found_;
};

/// Every list of sizes below `value`.
void collect_shapes(Json& value, std::vector<Json*>& shapes) {
  if (!value.is_structured()) return;
  if (value.is_object() && value.contains("shape") && value["shape"].is_array()) {
    shapes.push_back(&value["shape"]);
  }
  for (Json& inner : value) collect_shapes(inner, shapes);
}

/// One size becomes another wherever it stands, so that layers still fit each other.
void change_size_everywhere(Container& file, Random& random) {
  Texts texts(file.header);
  std::vector<Json*> shapes;
  collect_shapes(file.header, shapes);
  for (size_t i = 0; i < texts.size(); ++i) collect_shapes(texts[i], shapes);
  std::vector<uint64_t> sizes;
  for (const Json* shape : shapes) {
    for (const Json& size : *shape) {
      if (const auto one = whole(size)) sizes.push_back(*one);
    }
  }
  if (sizes.empty()) return;
  const uint64_t from = sizes[below(random, sizes.size())];
  const uint64_t other = sizes[below(random, sizes.size())];
  const std::array<uint64_t, 8> near = {from + 1, from + 2, from - 1, from * 2, from / 2, other, 1, 17};
  const uint64_t to = near[below(random, near.size())];
  for (Json* shape : shapes) {
    for (Json& size : *shape) {
      if (whole(size) == from) size = to;
    }
  }
}

/// Four bytes of the data become a number that is easily forgotten.
void change_data(Container& file, Random& random) {
  if (file.data.size() < 4) return;
  static const std::array<float, 8> odd = {0.0F,
                                           -0.0F,
                                           -1.0F,
                                           std::numeric_limits<float>::infinity(),
                                           std::numeric_limits<float>::quiet_NaN(),
                                           std::numeric_limits<float>::max(),
                                           std::numeric_limits<float>::denorm_min(),
                                           1e-30F};
  const size_t at = below(random, file.data.size() / 4) * 4;
  std::memcpy(file.data.data() + at, &odd[below(random, odd.size())], 4);
}

size_t put(const std::string& text, uint8_t* data, size_t size, size_t max_size) {
  if (text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

void change(Container& file, const Vocabulary& vocabulary, Random& random) {
  switch (below(random, 8)) {
    case 0:
      mutate_json(file.header, vocabulary, random);
      break;
    case 1:
      mutate_json(file.header, vocabulary, random);
      fit_data(file);
      break;
    case 2:
      change_data(file, random);
      break;
    case 3:
    case 4:
      change_size_everywhere(file, random);
      fit_data(file);
      break;
    default:
      Texts texts(file.header);
      mutate_json(texts.empty() ? file.header : texts[below(random, texts.size())], vocabulary, random);
  }
}

}  // namespace

size_t mutate_container(uint8_t* data, size_t size, size_t max_size, unsigned int seed,
                        const Vocabulary& vocabulary) {
  Random random(seed);
  if (below(random, 16) == 0) return LLVMFuzzerMutate(data, size, max_size);
  try {
    Container file(std::string(reinterpret_cast<const char*>(data), size));
    for (size_t edits = 1 + below(random, 3); edits > 0; --edits) change(file, vocabulary, random);
    return put(file.join(), data, size, max_size);
  } catch (const std::exception&) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
}

size_t mutate_text(uint8_t* data, size_t size, size_t max_size, unsigned int seed,
                   const Vocabulary& vocabulary) {
  Random random(seed);
  Json document = Json::parse(data, data + size, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded() || below(random, 16) == 0) return LLVMFuzzerMutate(data, size, max_size);
  for (size_t edits = 1 + below(random, 3); edits > 0; --edits) mutate_json(document, vocabulary, random);
  return put(document.dump(-1, ' ', false, Json::error_handler_t::replace), data, size, max_size);
}

}  // namespace ulp::fuzz
