#include "ulp/amp/optimizer/state_memory.h"

#include <ATen/Functions.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>

#include "ulp/amp/optimizer/large_pages.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

/// A new file of so many bytes, all there, all zeros.
class RoomInFile {
 public:
  RoomInFile(const std::string& folder, int64_t bytes) : path_(folder + "/ulp-state-XXXXXX") {
    descriptor_ = ::mkstemp(path_.data());
    if (descriptor_ < 0) refuse(folder, bytes, errno);
    // Room that is promised now is no signal in the middle of a step.
    if (const int problem = ::posix_fallocate(descriptor_, 0, bytes); problem != 0) {
      remove();
      refuse(folder, bytes, problem);
    }
  }
  ~RoomInFile() { remove(); }
  RoomInFile(const RoomInFile&) = delete;
  RoomInFile& operator=(const RoomInFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] static void refuse(const std::string& folder, int64_t bytes, int problem) {
    fail("amp.FusedOptimizer", "expected a folder with room for ", bytes, " bytes of state, got '", folder,
         "': ", std::strerror(problem));
  }
  void remove() {
    if (descriptor_ < 0) return;
    ::unlink(path_.c_str());  // what is mapped stays until it is let go
    ::close(descriptor_);
    descriptor_ = -1;
  }
  std::string path_;
  int descriptor_;
};

}  // namespace

at::Tensor StateMemory::in_file(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType type) const {
  const int64_t n = c10::multiply_integers(sizes);
  const RoomInFile room(folder_, n * static_cast<int64_t>(c10::elementSize(type)));
  return at::from_file(room.path(), /*shared=*/true, n, at::TensorOptions(type)).as_strided(sizes, strides);
}

bool StateMemory::is_for(int64_t elements, c10::ScalarType type) const {
  return !folder_.empty() && elements * static_cast<int64_t>(c10::elementSize(type)) >= kLeastFile;
}

at::Tensor StateMemory::zeros(const at::Tensor& like, c10::ScalarType type) const {
  return is_for(like.numel(), type) ? in_file(like.sizes(), like.strides(), type)
                                    : zeros_on_large_pages(like, type);
}

at::Tensor StateMemory::zeros(int64_t size, c10::ScalarType type) const {
  return is_for(size, type) ? in_file({size}, {1}, type) : at::zeros({size}, at::TensorOptions(type));
}

void StateMemory::move(at::Tensor& tensor) const {
  if (tensor.defined() && is_for(tensor.numel(), tensor.scalar_type()))
    tensor = in_file(tensor.sizes(), tensor.strides(), tensor.scalar_type()).copy_(tensor);
}

}  // namespace ulp::amp
