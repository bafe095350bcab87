#include "ulp/base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ulp/base/error.h"

namespace ulp {

AtomicFile::AtomicFile(std::filesystem::path target) : target_(std::move(target)) {
  temporary_ = target_;
  temporary_ += ".tmp" + std::to_string(::getpid());
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_with("open");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with("write");
    at += written;
    bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) fail_with("flush");
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0 || ::rename(temporary_.c_str(), target_.c_str()) != 0) {
    const int saved = errno;
    ::unlink(temporary_.c_str());
    errno = saved;
    fail_with("finish");
  }
}

void AtomicFile::fail_with(const char* doing) const {
  fail("base.AtomicFile", "could not ", doing, " '", target_.string(), "': ", std::strerror(errno));
}

}  // namespace ulp
