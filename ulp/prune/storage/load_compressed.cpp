#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "ulp/base/error.h"
#include "ulp/base/safetensors.h"
#include "ulp/libtorch/safetensors_tensor.h"
#include "ulp/prune/storage/coded_tensor_parts.h"
#include "ulp/prune/storage/compressed_file.h"
#include "ulp/prune/storage/file_stamp.h"

namespace ulp::prune {
namespace {

constexpr const char* kWhere = "prune.load_compressed";

DecodedTensor plain(const TensorEntry& entry, const std::filesystem::path& path) {
  const at::Tensor tensor = libtorch::to_tensor(kWhere, entry, path);
  const auto bytes = static_cast<int64_t>(entry.bytes.size());
  return {tensor,
          {.name = {},
           .dtype = entry.dtype,
           .shape = entry.shape,
           .elements = tensor.numel(),
           .stored = tensor.numel(),
           .dense_bytes = bytes,
           .positions = "dense",
           .values = entry.dtype,
           .bytes = {.values = bytes}}};
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

void add_aliases(CompressedFile& file, const FileStamp& stamp) {
  const std::unordered_map<std::string, at::Tensor> stored(file.tensors.begin(), file.tensors.end());
  for (const auto& [name, target] : stamp.aliases) {
    const auto found = stored.find(target);
    if (found == stored.end() || stored.contains(name)) {
      throw CodesProblem{"'" + name + "' is an alias of '" + target +
                         (found == stored.end() ? "', which is not there" : "', but is stored, too")};
    }
    file.tensors.emplace_back(name, found->second);
  }
}

}  // namespace

const at::Tensor* CompressedFile::find(const std::string& name) const {
  const auto found = std::ranges::find(tensors, name, &NamedTensors::value_type::first);
  return found == tensors.end() ? nullptr : &found->second;
}

CompressedFile load_compressed(const std::filesystem::path& path, uint64_t most_bytes) {
  const SafetensorsFile source(path);
  const uint64_t size = std::filesystem::file_size(path);
  uint64_t left = most_bytes > 0 ? most_bytes : most_loaded_bytes(size);
  std::string current;
  try {
    const FileStamp stamp = checked_stamp(source);
    CompressedFile file;
    file.metadata = source.metadata();
    file.metadata.erase(kStampKey);
    file.accounting.container_bytes = static_cast<int64_t>(size);
    for (const TensorEntry& entry : source.tensors()) {
      current = "'" + entry.name + "': ";
      DecodedTensor decoded = entry.dtype == "U8" ? decode_codes(entry.bytes, left) : plain(entry, path);
      const auto dense = static_cast<uint64_t>(decoded.account.dense_bytes);
      if (dense > left) throw CodesProblem{"the tensors take more than the limit"};
      left -= dense;
      decoded.account.name = entry.name;
      file.accounting.container_bytes -= decoded.account.bytes.total();
      file.tensors.emplace_back(entry.name, decoded.tensor);
      file.accounting.tensors.push_back(std::move(decoded.account));
    }
    current.clear();
    add_aliases(file, stamp);
    return file;
  } catch (const CodesProblem& problem) {
    fail_file(kWhere, "'", path.string(), "': ", current, problem.text);
  }
}

}  // namespace ulp::prune
