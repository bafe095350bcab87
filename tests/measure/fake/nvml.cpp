// Stands for the driver's library in tests: an A100 cut into three slices with a gap between them, and a
// V100.
#include <cstddef>
#include <cstring>

namespace {

constexpr int kNotSupported = 3, kNotFound = 6;
char gpus[2], slices[7];
int open_count = 0;

bool is_slice(const void* device) {
  return device >= static_cast<void*>(slices) && device < static_cast<void*>(slices + sizeof(slices));
}
bool is_a100(const void* device) {
  return device == &gpus[0];
}
/// Places 1, 2, 4 and 5 are empty.
bool is_used(unsigned place) {
  return place == 0 || place == 3 || place == 6;
}

struct Memory {
  unsigned long long total, free, used;
};
struct Attributes {
  unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, optical_flow, gpu_slices, compute_slices;
  unsigned long long memory_megabytes;
};
constexpr unsigned long long kMega = 1024 * 1024;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  ++open_count;
  return 0;
}
int nvmlShutdown() {
  --open_count;
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return open_count == 1 ? 0 : 1;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &gpus[index];
  return 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  std::strncpy(name, is_a100(device) ? "NVIDIA A100-SXM4-40GB" : "Tesla V100-SXM2-16GB", length);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  const unsigned long long total = is_slice(device) ? 4864 : is_a100(device) ? 40536 : 16160;
  *memory = {total * kMega, (total - 512) * kMega, 512 * kMega};
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = is_a100(device) ? 8 : 7;
  *minor = 0;
  return 0;
}
int nvmlDeviceGetNumGpuCores(void* device, unsigned* cores) {
  *cores = is_a100(device) ? 6912 : 5120;
  return 0;
}
int nvmlDeviceGetMaxClockInfo(void* device, unsigned type, unsigned* megahertz) {
  *megahertz = type == 1 ? (is_a100(device) ? 1410 : 1530) : (is_a100(device) ? 1215 : 877);
  return 0;
}
int nvmlDeviceGetMemoryBusWidth(void* device, unsigned* bits) {
  *bits = is_a100(device) ? 5120 : 4096;
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  if (!is_a100(device)) return kNotSupported;
  *current = *pending = 1;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = sizeof(slices);
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void*, unsigned place, void** device) {
  if (!is_used(place)) return kNotFound;
  *device = &slices[place];
  return 0;
}
int nvmlDeviceGetAttributes_v2(void* device, Attributes* attributes) {
  if (!is_slice(device)) return kNotSupported;
  *attributes = {14, 1, 0, 0, 0, 0, 1, 1, 4864};
  return 0;
}
}
