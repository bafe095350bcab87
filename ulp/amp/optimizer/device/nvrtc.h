// NVRTC and the CUDA driver, loaded by name; internal to the room.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

namespace ulp::amp {

/// A library of C functions, looked for under several names; the first that is there.
class NamedLibrary {
 public:
  explicit NamedLibrary(const std::vector<std::string>& names);
  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& name() const { return name_; }
  /// Calls a function that gives a status; kMissing where the library lacks it.
  static constexpr int kMissing = -1;
  template <typename... Args>
  int call(const char* function, Args... args) const {
    auto* found = reinterpret_cast<int (*)(Args...)>(::dlsym(handle_, function));
    return found == nullptr ? kMissing : found(args...);
  }

 private:
  void* handle_ = nullptr;  ///< never closed: these libraries have threads and handlers of the process's end
  std::string name_;
};

/// Where NVRTC may be: the names of the toolkit, and the folders of LibTorch's wheel.
std::vector<std::string> nvrtc_names();

}  // namespace ulp::amp
