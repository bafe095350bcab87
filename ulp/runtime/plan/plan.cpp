#include "ulp/runtime/plan/plan.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "ulp/base/error.h"
#include "ulp/base/safetensors.h"
#include "ulp/runtime/ops/op.h"
#include "ulp/runtime/plan/plan_json.h"
#include "ulp/runtime/plan/verify.h"

namespace ulp::runtime {
namespace {

// In the order of the enumerators: our word, the container's word, bytes.
struct TypeRow {
  const char* name;
  const char* stored;
  size_t bytes;
};
constexpr TypeRow kTypes[] = {{"f32", "F32", 4}, {"bf16", "BF16", 2}, {"u8", "U8", 1},
                              {"i8", "I8", 1},   {"i32", "I32", 4},   {"i64", "I64", 8}};

const TypeRow& row(DataType type) {
  return kTypes[static_cast<size_t>(type)];
}

DataType type_from_stored(const std::string& tensor, const std::string& word) {
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (word == kTypes[i].stored) return static_cast<DataType>(i);
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
    constant.bytes.assign(entry.bytes.begin(), entry.bytes.end());
  }
  verify_plan(plan);
  return plan;
}

}  // namespace

const char* to_string(DataType type) {
  return type > DataType::i64 ? "unknown" : row(type).name;
}
size_t element_size(DataType type) {
  return type > DataType::i64 ? 0 : row(type).bytes;
}
const char* to_string(Layout layout) {
  return layout == Layout::nhwc ? "nhwc" : "plain";
}

int64_t element_count(const TensorInfo& tensor, int64_t batch) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size == kBatch ? batch : size;
  return count;
}

size_t byte_count(const TensorInfo& tensor, int64_t batch) {
  return static_cast<size_t>(element_count(tensor, batch)) * element_size(tensor.type);
}

void Plan::save(const std::filesystem::path& path) const {
  verify();
  std::vector<TensorEntry> entries;
  for (const auto& [name, constant] : constants) {
    entries.push_back({name, row(constant.type).stored, constant.shape, constant.bytes});
  }
  // Wide elements first: every tensor then starts at a multiple of its element size.
  std::ranges::stable_sort(entries, [](const TensorEntry& a, const TensorEntry& b) {
    return safetensors_element_size(a.dtype) > safetensors_element_size(b.dtype);
  });
  write_safetensors(path, entries,
                    {{"ulp.format", "engine"},
                     {"ulp.version", std::to_string(kEngineFileVersion)},
                     {"ulp.plan", plan_to_json(*this)}});
}

Plan Plan::load(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  try {
    return read_plan(file);
  } catch (const PlanProblem& found) {
    fail_file("runtime.load", "'", path.string(), "': ", found.text);
  }
}

}  // namespace ulp::runtime
