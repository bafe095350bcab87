#include "ulp/distributed/shard_files.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <system_error>

#include "ulp/base/error.h"
#include "ulp/distributed/data_parallel_state.h"
#include "ulp/distributed/shards.h"
#include "ulp/io/safetensors.h"

namespace ulp::distributed {

namespace {

namespace fs = std::filesystem;

constexpr const char* kLoadShardsWhere = "distributed.load_shards";
constexpr const char* kVersionKey = "ulp.shard";
constexpr const char* kVersion = "1";
constexpr const char* kInfix = ".shard-";

/// "run.ckpt.shard-1-of-2-at-300"
std::string file_name(const fs::path& path, int rank, int ranks, int64_t step) {
  return path.filename().string() + kInfix + std::to_string(rank) + "-of-" + std::to_string(ranks) + "-at-" +
         std::to_string(step);
}

/// Where a stored piece begins: "3@256" is element 256 of parameter 3.
struct PieceName {
  uint32_t ordinal = 0;
  int64_t begin = 0;

  std::string text() const { return std::to_string(ordinal) + '@' + std::to_string(begin); }
  static PieceName read(const std::string& text, const std::string& file) {
    PieceName name;
    const char* const end = text.data() + text.size();
    const auto ordinal = std::from_chars(text.data(), end, name.ordinal);
    if (ordinal.ec == std::errc() && ordinal.ptr < end && *ordinal.ptr == '@') {
      const auto begin = std::from_chars(ordinal.ptr + 1, end, name.begin);
      if (begin.ec == std::errc() && begin.ptr == end && name.begin >= 0) return name;
    }
    fail_file(kLoadShardsWhere, "expected names of pieces in '", file, "', got '", text.substr(0, 80), "'");
  }
};

/// What is to be filled in: a parameter, or a piece of one, of an optimizer.
struct Target {
  uint32_t ordinal;
  int64_t begin;
  at::Tensor parameter;
  const amp::FusedOptions* options;
  std::map<std::string, int64_t> filled = {};  // elements of each buffer
};

/// Copies what a stored piece and a target have in common.
void fill(Target& target, amp::FusedOptimizer& optimizer, const StateBuffer& buffer, const at::Tensor& piece,
          int64_t piece_begin, const std::string& file) {
  const int64_t begin = std::max(target.begin, piece_begin);
  const int64_t end = std::min(target.begin + target.parameter.numel(), piece_begin + piece.numel());
  if (begin >= end) return;
  const auto type = type_of(buffer, *target.options, target.parameter.scalar_type());
  if (!type || *type != piece.scalar_type() || piece.dim() != 1)
    fail_file(kLoadShardsWhere, "expected a run with the same optimizer, masters and moments in '", file,
              "', got ", buffer.name, " of type ", piece.dtype());
  at::Tensor& its = made_state(optimizer, target.parameter).*buffer.member;
  if (!its.defined())
    its = at::zeros_like(target.parameter, target.parameter.options().dtype(*type).requires_grad(false));
  in_memory_order(its)
      .narrow(0, begin - target.begin, end - begin)
      .copy_(piece.narrow(0, begin - piece_begin, end - begin));
  target.filled[std::string(buffer.name)] += end - begin;
}

void fill_from(const fs::path& path, std::vector<Target>& targets, amp::FusedOptimizer& optimizer) {
  const io::TensorFile file = io::load_tensors(path);
  const auto version = file.metadata.find(kVersionKey);
  if (version == file.metadata.end() || version->second != kVersion)
    fail_file(kLoadShardsWhere, "'", path.string(), "' is no share of a checkpoint of version ", kVersion);
  for (const auto& [name, tensor] : file.tensors) {
    const size_t dot = name.find('.');
    const PieceName piece = PieceName::read(name.substr(0, dot), path.string());
    const std::string kind = dot == std::string::npos ? "" : name.substr(dot + 1);
    for (Target& target : targets) {
      if (target.ordinal != piece.ordinal) continue;
      if (kind == kStepName) {
        const bool count =
            tensor.numel() == 1 && tensor.scalar_type() == at::kLong && tensor.item<int64_t>() > 0;
        if (!count)
          fail_file(kLoadShardsWhere, "expected counts of steps > 0 in '", path.string(), "', got another '",
                    name, "'");
        made_state(optimizer, target.parameter).step = tensor.item<int64_t>();
        continue;
      }
      const StateBuffer* buffer = find_buffer(kind);
      if (buffer == nullptr)
        fail_file(kLoadShardsWhere, "expected buffers of optimizers in '", path.string(), "', got '", name,
                  "'");
      fill(target, optimizer, *buffer, tensor, piece.begin, path.string());
    }
  }
}

void load_into(std::vector<Target> targets, amp::FusedOptimizer& optimizer, const fs::path& path,
               const std::vector<std::string>& files) {
  const at::NoGradGuard no_grad;
  optimizer.state().clear();
  for (const std::string& file : files) {
    if (fs::path(file).filename() != file)
      fail_file(kLoadShardsWhere, "expected names of files beside '", path.string(), "', got '", file, "'");
    fill_from(path.parent_path() / file, targets, optimizer);
  }
  for (const Target& target : targets) {
    for (const auto& [name, elements] : target.filled) {
      if (elements == target.parameter.numel()) continue;
      fail_file(kLoadShardsWhere, "expected all of parameter ", target.ordinal, " in the shares of '",
                path.string(), "', got ", elements, " of ", target.parameter.numel(), " elements of ", name);
    }
  }
}

}  // namespace

std::vector<std::string> save_shards(const ShardedOptimizer& optimizer, const fs::path& path, int64_t step) {
  ProcessGroup& group = optimizer.group();
  io::NamedTensors tensors;
  for (const Shard& shard : optimizer.shards()) {
    const auto* state = state_of(optimizer.optimizer(), shard.tensor);
    if (state == nullptr) continue;
    const std::string name = PieceName{shard.ordinal, shard.piece.begin}.text() + '.';
    tensors.emplace_back(name + kStepName, at::full({1}, state->step, at::kLong));
    for (const StateBuffer& buffer : kStateBuffers)
      if ((state->*buffer.member).defined())
        tensors.emplace_back(name + std::string(buffer.name), state->*buffer.member);
  }
  io::save_tensors(path.parent_path() / file_name(path, group.rank(), group.size(), step), tensors,
                   {{kVersionKey, kVersion}});
  group.barrier();
  std::vector<std::string> names;
  for (int rank = 0; rank < group.size(); ++rank) names.push_back(file_name(path, rank, group.size(), step));
  return names;
}

void remove_other_shards(const fs::path& path, const std::vector<std::string>& kept) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const std::string start = path.filename().string() + kInfix;
  std::error_code ignored;  // what stays is found by the next one
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(start) && std::ranges::find(kept, name) == kept.end())
      fs::remove(entry.path(), ignored);
  }
}

void load_shards(amp::FusedOptimizer& optimizer, const fs::path& path,
                 const std::vector<std::string>& files) {
  std::vector<Target> targets;
  uint32_t ordinal = 0;
  for (size_t g = 0; g < optimizer.param_groups().size(); ++g) {
    for (const at::Tensor& parameter : optimizer.param_groups()[g].params())
      targets.push_back({ordinal++, 0, parameter, &options_of(optimizer, g)});
  }
  load_into(std::move(targets), optimizer, path, files);
}

void load_shards(ShardedOptimizer& optimizer, const fs::path& path, const std::vector<std::string>& files) {
  std::vector<Target> targets;
  for (const Shard& shard : optimizer.shards())
    targets.push_back(
        {shard.ordinal, shard.piece.begin, shard.tensor, &options_of(optimizer.optimizer(), shard.group)});
  load_into(std::move(targets), optimizer.optimizer(), path, files);
}

}  // namespace ulp::distributed
