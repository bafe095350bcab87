#include "device_kernels.h"

#include <stdexcept>

#include "ulp/amp/optimizer/device/update_kernels.cuh"

namespace ulp::amp::test {

namespace {

template <typename Args>
void run_blocks(void (*kernel)(Args), int64_t blocks, const void* args, size_t bytes) {
  if (bytes != sizeof(Args)) throw std::logic_error("a kernel's argument of another size");
  for (int64_t block = 0; block < blocks; ++block) {
    ulp_device::block_now = block;
    kernel(*static_cast<const Args*>(args));
  }
}

}  // namespace

void CpuKernels::launch(const char* kernel, int64_t blocks, const void* args, size_t bytes) {
  const std::string name = kernel;
  ++launches[name];
  const std::string copy(static_cast<const char*>(args), bytes);
  const auto run = [=] {
    const void* const own = copy.data();
    if (name == "ulp_update") return run_blocks(&ulp_device::ulp_update, blocks, own, bytes);
    if (name == "ulp_numbers") return run_blocks(&ulp_device::ulp_numbers, blocks, own, bytes);
    if (name == "ulp_square_sums") return run_blocks(&ulp_device::ulp_square_sums, blocks, own, bytes);
    if (name == "ulp_total") return run_blocks(&ulp_device::ulp_total, blocks, own, bytes);
    throw std::logic_error("no kernel " + name);
  };
  if (hold) {
    held.emplace_back(run);
  } else {
    run();
  }
}

void CpuKernels::run_held() const {
  for (const auto& run : held) run();
}

}  // namespace ulp::amp::test
