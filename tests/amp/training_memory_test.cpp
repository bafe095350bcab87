#include "ulp/amp/optimizer/training_memory.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace {

#ifdef __linux__
/// The flags of the mapping that holds `address`, as in proc(5); empty if the system does not say.
std::string mapping_flags(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream range(line);
    if (range >> std::hex >> begin >> dash >> end && dash == '-') inside = begin <= wanted && wanted < end;
    if (inside && line.rfind("VmFlags:", 0) == 0) return line + " ";
  }
  return {};
}

TEST(TrainingMemory, LargeTensorsAskForLargePages) {
  ulp::amp::prepare_training_memory();
  ulp::amp::prepare_training_memory();  // the second time it does nothing
  const at::Tensor tensor = torch::ones({5, 1 << 20});
  const std::string flags = mapping_flags(tensor.data_ptr<float>() + (1 << 20));
  if (flags.empty() || !std::filesystem::exists("/sys/kernel/mm/transparent_hugepage"))
    GTEST_SKIP() << "this system has no large pages, or does not say where";
  EXPECT_NE(flags.find(" hg "), std::string::npos) << flags;
  EXPECT_EQ(tensor.sum().item<float>(), 5 << 20);
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  const c10::DataPtr copy = allocator.clone(tensor.const_data_ptr(), tensor.nbytes());
  EXPECT_EQ(std::memcmp(copy.get(), tensor.const_data_ptr(), tensor.nbytes()), 0);
  allocator.raw_deallocate(allocator.raw_allocate(100));
}
#endif

#if defined(__GLIBC__) && !defined(ULP_SANITIZED)
#if __GLIBC_PREREQ(2, 33)
TEST(TrainingMemory, FreedTensorsLeaveTheirMemoryToTheNext) {
  ulp::amp::prepare_training_memory();
  constexpr size_t kBytes = 96 << 20;  // above every threshold of glibc's own
  const size_t mapped = mallinfo2().hblkhd;
  at::Tensor tensor = torch::ones({kBytes}, torch::kUInt8);
  EXPECT_EQ(mallinfo2().hblkhd, mapped) << "a mapping of its own goes back to the system when it is freed";
  const size_t unused = mallinfo2().fordblks;
  tensor.reset();
  EXPECT_GE(mallinfo2().fordblks, unused + kBytes);
}
#endif
#endif

}  // namespace
