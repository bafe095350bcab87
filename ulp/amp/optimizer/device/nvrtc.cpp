#include "ulp/amp/optimizer/device/nvrtc.h"

#include <ATen/Context.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "ulp/amp/optimizer/device/kernel_launcher.h"
#include "ulp/amp/optimizer/device/kernel_source.h"
#include "ulp/base/error.h"

namespace ulp::amp {

namespace {

constexpr const char* kNvrtcWhere = "amp.compile_update_kernels";

/// A program of NVRTC; nvrtcProgram is a pointer.
class NvrtcProgram {
 public:
  NvrtcProgram(const NamedLibrary& nvrtc, const char* source, const char* name) : nvrtc_(nvrtc) {
    status_ = nvrtc_.call("nvrtcCreateProgram", &program_, source, name, 0,
                          static_cast<const char* const*>(nullptr), static_cast<const char* const*>(nullptr));
  }
  ~NvrtcProgram() {
    if (program_ != nullptr) nvrtc_.call("nvrtcDestroyProgram", &program_);
  }
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;

  int compile(const std::vector<std::string>& options) {
    if (status_ != 0) return status_;
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    return nvrtc_.call("nvrtcCompileProgram", program_, static_cast<int>(texts.size()),
                       static_cast<const char* const*>(texts.data()));
  }
  /// The bytes of a pair of functions that give a size and the contents.
  std::string bytes(const char* size_of, const char* contents_of) const {
    size_t size = 0;
    if (program_ == nullptr || nvrtc_.call(size_of, program_, &size) != 0 || size == 0) return {};
    std::string result(size, '\0');
    if (nvrtc_.call(contents_of, program_, result.data()) != 0) return {};
    return result;
  }

 private:
  const NamedLibrary& nvrtc_;
  void* program_ = nullptr;
  int status_ = 0;
};

/// The compute capabilities that NVRTC makes machine code for, ascending.
std::vector<int> supported_architectures(const NamedLibrary& nvrtc) {
  int count = 0;
  if (nvrtc.call("nvrtcGetNumSupportedArchs", &count) != 0 || count <= 0) return {};
  std::vector<int> found(static_cast<size_t>(count));
  if (nvrtc.call("nvrtcGetSupportedArchs", found.data()) != 0) return {};
  std::ranges::sort(found);
  return found;
}

}  // namespace

NamedLibrary::NamedLibrary(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) continue;
    name_ = name;
    return;
  }
}

std::vector<std::string> nvrtc_names() {
  std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&at::globalContext), &info) == 0 || info.dli_fname == nullptr)
    return names;
  const std::filesystem::path folder = std::filesystem::path(info.dli_fname).parent_path();  // torch/lib
  names.push_back(folder / "libcaffe2_nvrtc.so");  // it is linked with NVRTC
  const std::filesystem::path wheels = folder.parent_path().parent_path() / "nvidia";
  names.push_back(wheels / "cu13/lib/libnvrtc.so.13");
  names.push_back(wheels / "cuda_nvrtc/lib/libnvrtc.so.12");
  return names;
}

std::string compile_update_kernels(const std::string& nvrtc_name, int capability) {
  const NamedLibrary nvrtc(nvrtc_name.empty() ? nvrtc_names() : std::vector<std::string>{nvrtc_name});
  if (!nvrtc) fail(kNvrtcWhere, "expected NVRTC (libnvrtc.so.13 or 12, a part of CUDA), got none");
  const std::vector<int> known = supported_architectures(nvrtc);
  if (known.empty() || capability < known.front()) {
    fail(kNvrtcWhere, "expected a compute capability that '", nvrtc.name(), "' knows, got ", capability / 10,
         '.', capability % 10);
  }
  const bool exact = std::ranges::binary_search(known, capability);
  const int architecture = exact ? capability : *(std::ranges::upper_bound(known, capability) - 1);
  const std::string source(kUpdateKernelSource);
  NvrtcProgram program(nvrtc, source.c_str(), "update_kernels.cuh");
  const int status = program.compile(
      {"--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true",
       "--gpu-architecture=" + std::string(exact ? "sm_" : "compute_") + std::to_string(architecture)});
  if (status != 0) {
    fail(kNvrtcWhere, "expected '", nvrtc.name(), "' to compile the kernels, got status ", status, ": ",
         program.bytes("nvrtcGetProgramLogSize", "nvrtcGetProgramLog").c_str());
  }
  std::string code = exact ? program.bytes("nvrtcGetCUBINSize", "nvrtcGetCUBIN")
                           : program.bytes("nvrtcGetPTXSize", "nvrtcGetPTX");
  if (code.empty()) fail(kNvrtcWhere, "expected machine code from '", nvrtc.name(), "', got none");
  return code;
}

}  // namespace ulp::amp
