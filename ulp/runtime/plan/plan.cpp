#include "ulp/runtime/plan/plan.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/safetensors.h"
#include "ulp/runtime/plan/plan_json.h"
#include "ulp/runtime/plan/step_view.h"
#include "ulp/runtime/plan/verify.h"

namespace ulp::runtime {
namespace {

[[noreturn]] void refuse_batch(const char* where, const TensorInfo& tensor, int64_t batch) {
  fail(ErrorCode::out_of_memory, where, "expected a batch that memory can hold, got ", batch, " for '",
       tensor.name, "' ", shape_text(tensor));
}

/// The container's word of a type: its name in capitals.
std::string stored_word(DataType type) {
  std::string word = to_string(type);
  for (char& letter : word) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return word;
}

DataType type_from_stored(const std::string& tensor, const std::string& word) {
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = static_cast<DataType>(i);
    if (is_stored(type) && word == stored_word(type)) return type;
  }
  problem("tensor '", tensor, "' has the type ", word, ", which engine files do not use");
}

const std::string& metadata_entry(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    problem("expected an engine file, got a safetensors file without '", key, "' in its metadata");
  }
  return found->second;
}

void check_version(const SafetensorsFile& file) {
  if (const std::string& format = metadata_entry(file, "ulp.format"); format != "engine") {
    problem("expected an engine file, got ulp.format '", format, "'");
  }
  const std::string& text = metadata_entry(file, "ulp.version");
  int version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end != text.data() + text.size() || version < 1) {
    problem("expected ulp.version to be a number, got '", text, "'");
  }
  if (version > kEngineFileVersion) {
    problem("the file has format version ", version, ", this library reads up to ", kEngineFileVersion,
            ": use a newer ulp");
  }
}

Plan read_plan(const SafetensorsFile& file) {
  check_version(file);
  Plan plan = plan_from_json(metadata_entry(file, "ulp.plan"));
  for (const TensorEntry& entry : file.tensors()) {
    Constant& constant = plan.constants[entry.name];
    constant.type = type_from_stored(entry.name, entry.dtype);
    constant.shape = entry.shape;
    constant.bytes = std::vector<std::byte>(entry.bytes.begin(), entry.bytes.end());
  }
  verify_plan(plan);
  return plan;
}

Plan read_plan(const SafetensorsFile& file, const std::string& name) {
  try {
    return read_plan(file);
  } catch (const PlanProblem& found) {
    fail_file("runtime.load", "'", name, "': ", found.text);
  }
}

}  // namespace

const char* to_string(Layout layout) {
  return layout == Layout::nhwc ? "nhwc" : "plain";
}

void Step::refuse_get() const {
  fail("runtime.Step", "expected other attributes than those of op '", to_string(op), "', as step '", name,
       "' has them");
}

std::optional<size_t> batch_dimension(const TensorInfo& tensor) {
  const auto at = std::ranges::find(tensor.shape, kBatch);
  if (at == tensor.shape.end()) return std::nullopt;
  return static_cast<size_t>(at - tensor.shape.begin());
}

std::vector<int64_t> sizes_at(const TensorInfo& tensor, int64_t batch) {
  std::vector<int64_t> sizes = tensor.shape;
  int64_t rows = tensor.times;
  if (batch_dimension(tensor) && __builtin_mul_overflow(rows, batch, &rows))
    refuse_batch("runtime.sizes_at", tensor, batch);
  std::ranges::replace(sizes, kBatch, rows);
  return sizes;
}

int64_t batch_in(const TensorInfo& tensor, std::span<const int64_t> sizes) {
  const std::optional<size_t> batch = batch_dimension(tensor);
  return batch && *batch < sizes.size() ? std::max<int64_t>(sizes[*batch] / tensor.times, 1) : 1;
}

int64_t element_count(const TensorInfo& tensor, int64_t batch) {
  int64_t count = tensor.times;
  for (const int64_t size : tensor.shape)
    if (__builtin_mul_overflow(count, size == kBatch ? batch : size, &count))
      refuse_batch("runtime.element_count", tensor, batch);
  return count;
}

size_t byte_count(const TensorInfo& tensor, int64_t batch) {
  int64_t bytes = element_count(tensor, batch);
  if (__builtin_mul_overflow(bytes, element_bytes(tensor.type), &bytes))
    refuse_batch("runtime.byte_count", tensor, batch);
  return static_cast<size_t>(bytes);
}

void Plan::save(const std::filesystem::path& path) const {
  verify();
  std::vector<TensorEntry> entries;
  for (const auto& [name, constant] : constants) {
    entries.push_back({name, stored_word(constant.type), constant.shape, constant.bytes});
  }
  // Wide elements first: every tensor then starts at a multiple of its element size.
  std::ranges::stable_sort(entries, [](const TensorEntry& a, const TensorEntry& b) {
    return safetensors_element_size(a.dtype) > safetensors_element_size(b.dtype);
  });
  write_safetensors(path, entries,
                    {{"ulp.format", "engine"},
                     {"ulp.version", std::to_string(following.free.empty() ? 1 : kEngineFileVersion)},
                     {"ulp.plan", plan_to_json(*this)}});
}

Plan Plan::load(const std::filesystem::path& path) {
  return read_plan(SafetensorsFile(path), path.string());
}

Plan Plan::load(std::span<const std::byte> file) {
  const std::string name = "bytes in memory";
  return read_plan(SafetensorsFile(file, name), name);
}

}  // namespace ulp::runtime
