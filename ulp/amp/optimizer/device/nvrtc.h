// NVRTC and the CUDA driver, loaded by name; internal to the room.
#pragma once

#include <dlfcn.h>

#include <memory>
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
    auto* found = reinterpret_cast<int (*)(Args...)>(::dlsym(handle_.get(), function));
    return found == nullptr ? kMissing : found(args...);
  }
  /// Null where the library lacks it.
  void* find(const char* function) const { return ::dlsym(handle_.get(), function); }

 private:
  std::shared_ptr<void> handle_;
  std::string name_;
};

/// Where NVRTC may be: the names of the toolkit, and the folders of LibTorch's wheel.
std::vector<std::string> nvrtc_names();

}  // namespace ulp::amp
