#include <algorithm>
#include <filesystem>
#include <limits>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/base/safetensors.h"
#include "ulp/libtorch/safetensors_tensor.h"
#include "ulp/prune/storage/compressed_file.h"
#include "ulp/prune/storage/encoded_tensor_parts.h"
#include "ulp/prune/storage/file_stamp.h"

namespace ulp::prune {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<int64_t>::max();  // the sum was checked before

/// Of a tensor that is stored as it is.
TensorAccount plain_account(const TensorEntry& entry) {
  uint64_t elements = 1;
  for (const int64_t size : entry.shape) elements *= static_cast<uint64_t>(size);
  const auto count = static_cast<int64_t>(elements), bytes = static_cast<int64_t>(entry.bytes.size());
  return {.name = {},
          .dtype = entry.dtype,
          .shape = entry.shape,
          .elements = count,
          .stored = count,
          .dense_bytes = bytes,
          .positions = "dense",
          .values = entry.dtype,
          .bytes = {.values = bytes}};
}

FileStamp checked_stamp(const SafetensorsFile& source) {
  const auto found = source.metadata().find(kStampKey);
  if (found == source.metadata().end())
    throw CodesProblem{"expected a compressed file, got one without the metadata '" + std::string(kStampKey) +
                       "'"};
  FileStamp stamp = FileStamp::from_json(found->second);
  const uint32_t sum = checksum_of(source.tensors(), source.metadata(), stamp.aliases);
  if (sum != stamp.checksum) {
    throw CodesProblem{"the file is damaged: its checksum is " + std::to_string(stamp.checksum) +
                       ", its contents have " + std::to_string(sum)};
  }
  return stamp;
}

void check_aliases(const SafetensorsFile& source, const FileStamp& stamp) {
  for (const auto& [name, target] : stamp.aliases) {
    const bool is_there = source.find(target) != nullptr;
    if (!is_there || source.find(name) != nullptr) {
      throw CodesProblem{"'" + name + "' is an alias of '" + target +
                         (is_there ? "', but is stored, too" : "', which is not there")};
    }
  }
}

/// Says which tensor a problem is with.
template <typename Action>
auto of_entry(const TensorEntry& entry, const Action& action) {
  try {
    return action();
  } catch (const CodesProblem& problem) {
    throw CodesProblem{"'" + entry.name + "': " + problem.text};
  }
}

/// The sizes of the dense tensors together fit 63 bits.
Accounting accounting_of(const SafetensorsFile& source, uint64_t file_bytes) {
  Accounting accounting;
  accounting.container_bytes = static_cast<int64_t>(file_bytes);
  int64_t dense = 0;
  for (const TensorEntry& entry : source.tensors()) {
    TensorAccount account = of_entry(
        entry, [&] { return entry.dtype == kCodedType ? account_codes(entry.bytes) : plain_account(entry); });
    if (__builtin_add_overflow(dense, account.dense_bytes, &dense))
      throw CodesProblem{"the sizes of its tensors together overflow"};
    account.name = entry.name;
    accounting.container_bytes -= account.bytes.total();
    accounting.tensors.push_back(std::move(account));
  }
  return accounting;
}

/// Rethrows what is wrong with a file as its error.
template <typename Action>
auto of_file(const char* where, const std::filesystem::path& path, const Action& action) {
  try {
    return action();
  } catch (const CodesProblem& problem) {
    fail_file(where, "'", path.string(), "': ", problem.text);
  }
}

void check_room(const Accounting& accounting, uint64_t most_bytes) {
  const auto dense = static_cast<uint64_t>(accounting.dense_bytes());
  if (dense <= most_bytes) return;
  throw CodesProblem{"expected tensors of at most " + std::to_string(most_bytes) +
                     " bytes together (most_bytes), got " + std::to_string(dense)};
}

CompressedFile load(const SafetensorsFile& source, const std::filesystem::path& path, uint64_t most_bytes,
                    const char* where) {
  const uint64_t size = std::filesystem::file_size(path);
  const FileStamp stamp = checked_stamp(source);
  check_aliases(source, stamp);
  CompressedFile file;
  file.metadata = source.metadata();
  file.metadata.erase(kStampKey);
  file.accounting = accounting_of(source, size);
  check_room(file.accounting, most_bytes > 0 ? most_bytes : most_loaded_bytes(size));
  std::unordered_map<std::string, at::Tensor> by_name;
  for (const TensorEntry& entry : source.tensors()) {
    const at::Tensor tensor = of_entry(entry, [&] {
      return entry.dtype == kCodedType ? decode_codes(entry.bytes, kNoLimit).tensor
                                       : libtorch::to_tensor(where, entry, path);
    });
    file.tensors.emplace_back(entry.name, tensor);
    by_name.emplace(entry.name, tensor);
  }
  for (const auto& [name, target] : stamp.aliases) file.tensors.emplace_back(name, by_name.at(target));
  return file;
}

}  // namespace

const at::Tensor* CompressedFile::find(const std::string& name) const {
  const auto found = std::ranges::find(tensors, name, &NamedTensors::value_type::first);
  return found == tensors.end() ? nullptr : &found->second;
}

CompressedFile load_compressed(const std::filesystem::path& path, uint64_t most_bytes) {
  constexpr const char* kWhere = "prune.load_compressed";
  const SafetensorsFile source(path);
  return of_file(kWhere, path, [&] { return load(source, path, most_bytes, kWhere); });
}

Accounting load_accounting(const std::filesystem::path& path) {
  const SafetensorsFile source(path);
  return of_file("prune.load_accounting", path, [&] {
    check_aliases(source, checked_stamp(source));
    return accounting_of(source, std::filesystem::file_size(path));
  });
}

}  // namespace ulp::prune
