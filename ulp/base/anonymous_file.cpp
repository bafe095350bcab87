#include "ulp/base/anonymous_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "ulp/base/error.h"

namespace ulp {

namespace {

int open_without_name(const std::string& folder) {
#ifdef O_TMPFILE
  return ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
#else
  errno = EOPNOTSUPP;
  return -1;
#endif
}

int open_and_remove(const std::string& folder) {
  std::string name = folder + "/ulp-XXXXXX";
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor >= 0) ::unlink(name.c_str());
  return descriptor;
}

}  // namespace

std::string usual_folder(const std::string& folder) {
  if (!folder.empty()) return folder;
  const char* temporary = std::getenv("TMPDIR");
  return temporary != nullptr && *temporary != 0 ? temporary : "/tmp";
}

AnonymousFile::AnonymousFile(const char* where, const std::string& folder, Way way)
    : folder_(usual_folder(folder)), descriptor_(way == Way::best ? open_without_name(folder_) : -1) {
  // EISDIR is what kernels answer that do not know the flag.
  if (way == Way::removed || (descriptor_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)))
    descriptor_ = open_and_remove(folder_);
  if (descriptor_ < 0)
    fail_file(where, "expected a folder for temporary files, got '", folder_, "': ", std::strerror(errno));
}

AnonymousFile::~AnonymousFile() {
  ::close(descriptor_);
}

void AnonymousFile::reserve(const char* where, int64_t bytes) {
  const int problem = ::posix_fallocate(descriptor_, 0, bytes);
  if (problem != 0) {
    fail_file(where, "expected a folder with room for ", bytes, " bytes, got '", folder_,
              "': ", std::strerror(problem));
  }
}

void* AnonymousFile::map(const char* where, int64_t bytes) const {
  void* memory =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED)
    fail_file(where, "expected to map ", bytes, " bytes of a file in '", folder_,
              "': ", std::strerror(errno));
  return memory;
}

void AnonymousFile::unmap(void* memory, int64_t bytes) {
  ::munmap(memory, static_cast<size_t>(bytes));
}

}  // namespace ulp
