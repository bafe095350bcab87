#include "ulp/io/text_dataset.h"

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <string_view>

#include "ulp/base/error.h"

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

}  // namespace

int64_t TextDataset::length() const {
  return bytes.defined() ? bytes.size(1) - (labelled() ? 0 : 1) : 0;
}

TextBatch TextDataset::gather(std::span<const int64_t> samples) const {
  for (const int64_t sample : samples) {
    if (sample < 0 || sample >= size()) {
      fail("io.TextDataset.gather", "expected samples below ", size(), ", got ", sample);
    }
  }
  const at::Tensor index = torch::tensor(at::ArrayRef<int64_t>(samples.data(), samples.size()), at::kLong);
  const at::Tensor rows = bytes.index_select(0, index).to(at::kLong);
  if (labelled()) return {rows, labels.index_select(0, index)};
  return {rows.narrow(1, 0, length()).contiguous(), rows.narrow(1, 1, length()).contiguous()};
}

TextDataset slice(const TextDataset& dataset, int64_t begin, int64_t end) {
  if (begin < 0 || end > dataset.size() || begin >= end) {
    fail("io.slice", "expected a range within the ", dataset.size(), " texts, got ", begin, "..", end);
  }
  TextDataset part = dataset;
  part.bytes = dataset.bytes.slice(0, begin, end);
  if (dataset.labelled()) part.labels = dataset.labels.slice(0, begin, end);
  return part;
}

TextDataset load_text(const fs::path& path, int64_t length, int64_t stride) {
  constexpr const char* kWhere = "io.load_text";
  check_length(kWhere, length);
  if (stride < 0) fail(kWhere, "expected a stride of at least 0, got ", stride);
  const at::Tensor bytes = read_bytes(kWhere, path);
  if (bytes.size(0) <= length) {
    fail_file(kWhere, "expected at least ", length + 1, " bytes in '", path.string(), "', got ",
              bytes.size(0));
  }
  TextDataset dataset;
  dataset.bytes = bytes.unfold(0, length + 1, stride > 0 ? stride : length);
  return dataset;
}

TextDataset load_labelled_text(const fs::path& path, int64_t length,
                               const std::vector<std::string>& class_names) {
  constexpr const char* kWhere = "io.load_labelled_text";
  check_length(kWhere, length);
  const at::Tensor file = read_bytes(kWhere, path);
  const std::string_view all(static_cast<const char*>(file.const_data_ptr()),
                             static_cast<size_t>(file.numel()));
  const std::vector<Line> lines = split_lines(kWhere, all, path.string());
  if (lines.empty())
    fail_file(kWhere, "expected lines of `label<TAB>text`, got none in '", path.string(), "'");
  TextDataset dataset;
  dataset.class_names = class_names.empty() ? labels_of(lines) : class_names;
  const auto count = static_cast<int64_t>(lines.size());
  dataset.bytes = torch::full({count, length}, kTextPadding, at::kByte);
  dataset.labels = torch::empty({count}, at::kLong);
  auto* target = dataset.bytes.mutable_data_ptr<uint8_t>();
  auto* labels = dataset.labels.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto& names = dataset.class_names;
    const auto found = std::find(names.begin(), names.end(), lines[i].label);
    if (found == names.end()) {
      fail_file(kWhere, "unknown label '", std::string(lines[i].label.substr(0, 40)), "' in line ", i + 1,
                " of '", path.string(), "'");
    }
    labels[i] = found - names.begin();
    const size_t kept = std::min(lines[i].text.size(), static_cast<size_t>(length));
    std::memcpy(target + i * static_cast<size_t>(length), lines[i].text.data(), kept);
  }
  return dataset;
}

}  // namespace ulp::io
