#include "ulp/memory/saved/packed.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include "ulp/memory/saved/group_quantization.h"

namespace ulp::memory {
namespace {

class InMemory final : public Stored {
 public:
  explicit InMemory(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  at::Tensor get() override { return tensor_; }

 private:
  at::Tensor tensor_;
};

/// Of a GPU, in pinned memory of the host. Copies run on the current stream, which orders them.
class OnHost final : public Stored {
 public:
  explicit OnHost(const at::Tensor& dense)
      : device_(dense.device()),
        host_(at::empty_strided(dense.sizes(), dense.strides(),
                                dense.options().device(at::kCPU).pinned_memory(true))) {
    host_.copy_(dense, /*non_blocking=*/true);
  }
  at::Tensor get() override {
    at::Tensor result = ahead_.defined() ? std::move(ahead_) : copy();
    ahead_.reset();
    return result;
  }
  void announce() override {
    if (!ahead_.defined()) ahead_ = copy();
  }

 private:
  at::Tensor copy() const {
    at::Tensor made = at::empty_strided(host_.sizes(), host_.strides(),
                                        host_.options().device(device_).pinned_memory(false));
    return made.copy_(host_, /*non_blocking=*/true);
  }
  at::Device device_;
  at::Tensor host_, ahead_;
};

class InFile final : public Stored {
 public:
  InFile(SpillFile& file, const at::Tensor& dense) : entry_(file.write(dense)) {}
  at::Tensor get() override { return entry_->get(); }
  void announce() override { entry_->announce(); }

 private:
  std::shared_ptr<SpillFile::Entry> entry_;
};

bool has_groups(const at::Tensor& tensor) {
  return tensor.is_cpu() && (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16 ||
                             tensor.scalar_type() == at::kHalf);
}

}  // namespace

Packer::Packer(SavedOptions options, std::shared_ptr<std::atomic<uint64_t>> draws)
    : options_(std::move(options)),
      draws_(draws ? std::move(draws) : std::make_shared<std::atomic<uint64_t>>(0)) {
  options_.validate();
  if (options_.place == StorageLocation::file) file_ = SpillFile::open(options_.folder);
}

std::unique_ptr<Stored> Packer::store(at::Tensor dense) {
  if (dense.numel() * static_cast<int64_t>(dense.itemsize()) >= options_.smallest) {
    if (options_.place == StorageLocation::host && !dense.is_cpu()) return std::make_unique<OnHost>(dense);
    if (options_.place == StorageLocation::file && dense.is_cpu())
      return std::make_unique<InFile>(*file_, dense);
  }
  return std::make_unique<InMemory>(std::move(dense));
}

Packed::Packed(const at::Tensor& like)
    : sizes_(like.sizes().vec()),
      strides_(like.strides().vec()),
      options_(like.options().requires_grad(false)) {}

std::shared_ptr<Packed> Packed::of(const at::Tensor& tensor, SavedFormat format, Packer& packer) {
  const SavedOptions& options = packer.options();
  if (tensor.layout() != at::kStrided || tensor.is_quantized() || !tensor.is_non_overlapping_and_dense() ||
      tensor.numel() * static_cast<int64_t>(tensor.itemsize()) < std::max<int64_t>(options.smallest, 1))
    return nullptr;
  std::shared_ptr<Packed> made(new Packed(tensor));
  if (format == SavedFormat::bf16 && tensor.scalar_type() == at::kFloat) {
    made->parts_.push_back(packer.store(tensor.to(at::kBFloat16)));
    made->decode_ = [](const std::vector<at::Tensor>& parts, at::Tensor& result) { result.copy_(parts[0]); };
    return made;
  }
  if ((format == SavedFormat::int8 || format == SavedFormat::int4) && has_groups(tensor)) {
    const int bits = format == SavedFormat::int8 ? 8 : 4;
    const int64_t group = options.group;
    if (const auto codes = encode_groups(tensor, bits, group, packer.next_key())) {
      for (const at::Tensor& part : {codes->codes, codes->least, codes->step})
        made->parts_.push_back(packer.store(part));
      made->decode_ = [bits, group](const std::vector<at::Tensor>& parts, at::Tensor& result) {
        decode_groups({parts[0], parts[1], parts[2]}, bits, group, result);
      };
      return made;
    }
  }
  const bool moves = (options.place == StorageLocation::host && !tensor.is_cpu()) ||
                     (options.place == StorageLocation::file && tensor.is_cpu());
  if (!moves) return nullptr;
  made->parts_.push_back(packer.store(tensor));
  return made;
}

std::shared_ptr<Packed> Packed::of(const at::Tensor& tensor, BitCodes codes, Packer& packer) {
  std::shared_ptr<Packed> made(new Packed(tensor));
  made->parts_.push_back(packer.store(codes.bits));
  codes.bits.reset();
  made->decode_ = [codes](const std::vector<at::Tensor>& parts, at::Tensor& result) {
    decode_bits({parts[0], codes.zero, codes.one}, result);
  };
  return made;
}

at::Tensor Packed::unpack() {
  const at::AutoGradMode no_grad(false);
  std::vector<at::Tensor> parts;
  for (const auto& part : parts_) parts.push_back(part->get());
  if (!decode_) return parts[0];
  at::Tensor result = at::empty_strided(sizes_, strides_, options_);
  decode_(parts, result);
  return result;
}

at::Tensor Packed::over(c10::Storage storage) const {
  const at::AutoGradMode no_grad(false);
  at::Tensor tensor = at::empty_strided({0}, {1}, options_);
  return tensor.set_(std::move(storage), 0, sizes_, strides_);
}

void Packed::announce() {
  for (const auto& part : parts_) part->announce();
}

}  // namespace ulp::memory
