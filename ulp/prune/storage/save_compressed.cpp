#include <torch/nn/module.h>

#include <algorithm>
#include <set>

#include "ulp/base/error.h"
#include "ulp/base/safetensors.h"
#include "ulp/libtorch/safetensors_tensor.h"
#include "ulp/prune/storage/compressed_file.h"
#include "ulp/prune/storage/file_stamp.h"

namespace ulp::prune {
namespace {

constexpr const char* kSaveCompressedWhere = "prune.save_compressed";

/// A tensor as it is written.
struct CompressedEntry {
  EncodedTensor coded;
  at::Tensor plain;  ///< defined where it is smallest as it is
  std::string dtype() const { return plain.defined() ? coded.account.dtype : kCodedType; }
  TensorEntry entry() const {
    if (!plain.defined()) {
      return {coded.account.name, kCodedType, {static_cast<int64_t>(coded.bytes.size())}, coded.bytes};
    }
    const auto* bytes = static_cast<const std::byte*>(plain.const_data_ptr());
    return {coded.account.name, coded.account.dtype, coded.account.shape, {bytes, plain.nbytes()}};
  }
};

CompressedEntry entry_of(const std::string& name, const at::Tensor& tensor, const CodeOptions& options) {
  CompressedEntry entry;
  try {
    entry.coded = encode_tensor(tensor, options);
  } catch (const Error& error) {
    fail(kSaveCompressedWhere, "'", name, "' cannot be stored: ", error.what());
  }
  TensorAccount& account = entry.coded.account;
  account.name = name;
  if (account.dtype == kCodedType || account.dense_bytes > account.bytes.total()) return entry;
  entry.plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
  entry.coded.bytes.clear();
  account.stored = account.elements;
  account.positions = "dense";
  account.values = account.dtype;
  account.bytes = {.values = account.dense_bytes};
  return entry;
}

}  // namespace

Accounting save_compressed(const std::filesystem::path& path, const NamedTensors& tensors,
                           const CodeOptions& options, const std::map<std::string, std::string>& metadata) {
  options.validate();
  if (metadata.contains(kStampKey))
    fail(kSaveCompressedWhere, "expected metadata without the key '", kStampKey, "', got it");
  std::map<libtorch::TensorIdentity, std::string> first_names;
  std::set<std::string> names;
  FileStamp stamp;
  std::vector<CompressedEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    libtorch::check_name(kSaveCompressedWhere, name);
    if (!names.insert(name).second) fail(kSaveCompressedWhere, "duplicate name '", name, "'");
    if (!tensor.defined()) fail(kSaveCompressedWhere, "expected a tensor for '", name, "', got none");
    if (tensor.layout() == at::kStrided && !tensor.is_meta() && tensor.numel() > 0) {
      const auto [first, is_new] = first_names.emplace(libtorch::identity_of(tensor), name);
      if (!is_new) {
        stamp.aliases.emplace(name, first->second);
        continue;
      }
    }
    entries.push_back(entry_of(name, tensor, options));
  }
  std::ranges::stable_sort(entries, std::ranges::greater(), [](const CompressedEntry& entry) {
    return safetensors_element_size(entry.dtype());
  });
  std::vector<TensorEntry> written;
  Accounting accounting;
  int64_t bytes = 0;
  for (const CompressedEntry& entry : entries) {
    written.push_back(entry.entry());
    accounting.tensors.push_back(entry.coded.account);
    bytes += entry.coded.account.bytes.total();
  }
  stamp.checksum = checksum_of(written, metadata, stamp.aliases);
  std::map<std::string, std::string> all = metadata;
  all[kStampKey] = stamp.to_json();
  write_safetensors(path, written, all);
  if (std::filesystem::is_regular_file(path))
    accounting.container_bytes = static_cast<int64_t>(std::filesystem::file_size(path)) - bytes;
  return accounting;
}

Accounting save_compressed(const std::filesystem::path& path, const torch::nn::Module& model,
                           const CodeOptions& options, const std::map<std::string, std::string>& metadata) {
  NamedTensors state;
  for (const auto& item : model.named_parameters()) state.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) state.emplace_back(item.key(), item.value());
  return save_compressed(path, state, options, metadata);
}

}  // namespace ulp::prune
