#include "ulp/io/text_dataset.h"

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <string_view>

#include "ulp/base/error.h"
#include "ulp/io/tokenizer/lines.h"

namespace ulp::io {

namespace {

namespace fs = std::filesystem;

at::Tensor read_bytes(const char* where, const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) fail_file(where, "expected a file, got '", path.string(), "'");
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  if (error || !file) fail_file(where, "could not read '", path.string(), "'");
  at::Tensor bytes = torch::empty({size}, at::kByte);
  if (!file.read(static_cast<char*>(bytes.data_ptr()), size)) {
    fail_file(where, "could not read '", path.string(), "'");
  }
  return bytes;
}

void check_length(const char* where, int64_t length) {
  if (length < 1) fail(where, "expected a length of at least 1, got ", length);
}

struct Line {
  std::string_view label, text;
};

/// The lines of the file. `all` must outlive them.
std::vector<Line> split_lines(const char* where, std::string_view all, const std::string& path) {
  std::vector<Line> lines;
  for (size_t at = 0, number = 1; at < all.size(); ++number) {
    const size_t end = std::min(all.find('\n', at), all.size());
    std::string_view line = all.substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos || tab == 0 || tab + 1 == line.size()) {
      fail_file(where, "expected `label<TAB>text` in line ", number, " of '", path, "'");
    }
    if (line.find('\0') != std::string_view::npos) {
      fail_file(where, "expected text, got a zero byte in line ", number, " of '", path, "'");
    }
    lines.push_back({line.substr(0, tab), line.substr(tab + 1)});
  }
  return lines;
}

std::vector<std::string> labels_of(const std::vector<Line>& lines) {
  std::set<std::string> names;
  for (const Line& line : lines) names.emplace(line.label);
  return {names.begin(), names.end()};
}

std::string_view view_of(const at::Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

/// int32 (tokens).
at::Tensor tokens_of(const Tokenizer& tokenizer, const at::Tensor& bytes, const std::string& path) {
  try {
    const auto ids = std::make_shared<std::vector<int32_t>>();
    for_each_line(view_of(bytes), [&](std::string_view line) {
      for (const int64_t id : tokenizer.encode(line, /*special=*/false).ids)
        ids->push_back(static_cast<int32_t>(id));
    });
    return torch::from_blob(
        ids->data(), {static_cast<int64_t>(ids->size())}, [ids](void*) {}, at::kInt);
  } catch (const Error& error) {
    throw FileError(std::string(error.what()) + " in '" + path + "'", error.info());
  }
}

/// int32 (lines, length), padded at the end.
at::Tensor lines_of(const char* where, const Tokenizer& tokenizer, const std::vector<Line>& lines,
                    int64_t length, const std::string& path) {
  const std::optional<int64_t> padding = tokenizer.padding();
  if (!padding) fail(where, "expected a tokenizer with a token for padding, got none");
  at::Tensor tokens = torch::full({static_cast<int64_t>(lines.size()), length}, *padding, at::kInt);
  auto* row = tokens.mutable_data_ptr<int32_t>();
  for (size_t i = 0; i < lines.size(); ++i, row += length) {
    try {
      const std::vector<int64_t> ids = tokenizer.encode(lines[i].text, /*special=*/true, length).ids;
      if (std::all_of(ids.begin(), ids.end(), [&](int64_t id) { return id == *padding; }))
        fail(where, "expected a text with a token that is no padding, got none");
      std::transform(ids.begin(), ids.end(), row, [](int64_t id) { return static_cast<int32_t>(id); });
    } catch (const Error& error) {
      throw FileError(std::string(error.what()) + " in line " + std::to_string(i + 1) + " of '" + path + "'",
                      error.info());
    }
  }
  return tokens;
}

}  // namespace

int64_t TextDataset::length() const {
  return tokens.defined() ? tokens.size(1) - (labelled() ? 0 : 1) : 0;
}

TextBatch TextDataset::gather(std::span<const int64_t> samples) const {
  for (const int64_t sample : samples) {
    if (sample < 0 || sample >= size()) {
      fail("io.TextDataset.gather", "expected samples below ", size(), ", got ", sample);
    }
  }
  const at::Tensor index = torch::tensor(at::ArrayRef<int64_t>(samples.data(), samples.size()), at::kLong);
  const at::Tensor rows = tokens.index_select(0, index).to(at::kLong);
  if (labelled()) return {rows, labels.index_select(0, index)};
  return {rows.narrow(1, 0, length()).contiguous(), rows.narrow(1, 1, length()).contiguous()};
}

TextDataset slice(const TextDataset& dataset, int64_t begin, int64_t end) {
  if (begin < 0 || end > dataset.size() || begin >= end) {
    fail("io.slice", "expected a range within the ", dataset.size(), " texts, got ", begin, "..", end);
  }
  TextDataset part = dataset;
  part.tokens = dataset.tokens.slice(0, begin, end);
  if (dataset.labelled()) part.labels = dataset.labels.slice(0, begin, end);
  return part;
}

TextDataset load_text(const fs::path& path, int64_t length, int64_t stride, const Tokenizer* tokenizer) {
  constexpr const char* kWhere = "io.load_text";
  check_length(kWhere, length);
  if (stride < 0) fail(kWhere, "expected a stride of at least 0, got ", stride);
  at::Tensor text = read_bytes(kWhere, path);
  if (tokenizer != nullptr) text = tokens_of(*tokenizer, text, path.string());
  if (text.size(0) <= length) {
    fail_file(kWhere, "expected at least ", length + 1, tokenizer != nullptr ? " tokens" : " bytes", " in '",
              path.string(), "', got ", text.size(0));
  }
  TextDataset dataset;
  dataset.tokens = text.unfold(0, length + 1, stride > 0 ? stride : length);
  return dataset;
}

TextDataset load_labelled_text(const fs::path& path, int64_t length,
                               const std::vector<std::string>& class_names, const Tokenizer* tokenizer) {
  constexpr const char* kWhere = "io.load_labelled_text";
  check_length(kWhere, length);
  const at::Tensor file = read_bytes(kWhere, path);
  const std::vector<Line> lines = split_lines(kWhere, view_of(file), path.string());
  if (lines.empty())
    fail_file(kWhere, "expected lines of `label<TAB>text`, got none in '", path.string(), "'");
  TextDataset dataset;
  dataset.class_names = class_names.empty() ? labels_of(lines) : class_names;
  const auto count = static_cast<int64_t>(lines.size());
  dataset.labels = torch::empty({count}, at::kLong);
  auto* labels = dataset.labels.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto& names = dataset.class_names;
    const auto found = std::find(names.begin(), names.end(), lines[i].label);
    if (found == names.end()) {
      fail_file(kWhere, "unknown label '", std::string(lines[i].label.substr(0, 40)), "' in line ", i + 1,
                " of '", path.string(), "'");
    }
    labels[i] = found - names.begin();
  }
  if (tokenizer != nullptr) {
    dataset.tokens = lines_of(kWhere, *tokenizer, lines, length, path.string());
    return dataset;
  }
  dataset.tokens = torch::full({count, length}, kTextPadding, at::kByte);
  auto* target = dataset.tokens.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t kept = std::min(lines[i].text.size(), static_cast<size_t>(length));
    std::memcpy(target + i * static_cast<size_t>(length), lines[i].text.data(), kept);
  }
  return dataset;
}

}  // namespace ulp::io
