#include "ulp/base/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "ulp/base/error.h"

namespace ulp {

namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;          // as many as the kernel follows
constexpr size_t kMaxNameBytes = 100;  // of the target's name in a temporary one: some systems end at 143
constexpr size_t kRandomDigits = 16;
constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::string_view kEnding = ".tmp";

/// How the temporary names of a target begin; random digits and the ending follow.
std::string name_start(const fs::path& place) {
  return '.' + place.filename().native().substr(0, kMaxNameBytes) + '.';
}

bool is_temporary(const std::string& name, const std::string& start) {
  return name.size() == start.size() + kRandomDigits + kEnding.size() && name.starts_with(start) &&
         name.ends_with(kEnding) &&
         name.find_first_not_of(kHexDigits, start.size()) == start.size() + kRandomDigits;
}

std::string random_digits() {
  std::string digits;
  unsigned char bytes[kRandomDigits];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) fail("base.AtomicFile", "got no random numbers");
  for (const unsigned char byte : bytes) digits += kHexDigits[byte % kHexDigits.size()];
  return digits;
}

fs::path folder_of(const fs::path& place) {
  return place.has_parent_path() ? place.parent_path() : fs::path(".");
}

/// Where a path leads.
struct FileTarget {
  fs::path path;  ///< without links; the last link may name a file that is not there yet
  /// A link of /proc ("/dev/stdout", "/dev/fd/3") led to what a descriptor has open, and that stays in use.
  bool is_descriptor = false;
};

FileTarget follow_links(fs::path path) {
  FileTarget place{std::move(path)};
  for (int i = 0; i < kMaxLinks; ++i) {
    std::error_code error;
    const fs::path next = fs::read_symlink(place.path, error);
    if (error) break;  // no link
    const fs::path folder = fs::weakly_canonical(folder_of(place.path), error);
    if (folder.native().starts_with("/proc/")) place.is_descriptor = true;
    place.path = place.path.parent_path() / next;  // an absolute one replaces it
  }
  return place;
}

bool is_same_file(const struct stat& status, const fs::path& place) {
  struct stat other {};
  return ::stat(place.c_str(), &other) == 0 && other.st_dev == status.st_dev && other.st_ino == status.st_ino;
}

/// Waits for the lock. File systems without locks give none, and nothing is cleaned there either.
void lock(int descriptor) {
  while (::flock(descriptor, LOCK_EX) != 0 && errno == EINTR) {
  }
}

bool is_unlinked(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && status.st_nlink == 0;
}

/// Removes temporary files of the target that no writer holds. What goes wrong here is no matter of the caller.
void remove_stale(const fs::path& place) {
  const std::string start = name_start(place);
  std::error_code ignored;
  for (fs::directory_iterator each(folder_of(place), ignored), end; each != end; each.increment(ignored)) {
    if (!is_temporary(each->path().filename().native(), start)) continue;
    const char* path = each->path().c_str();
    const int descriptor = ::open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) continue;
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) ::unlink(path);
    ::close(descriptor);
  }
}

/// False where the file or its system has nothing to flush.
bool can_flush(int error) {
  return error != EINVAL && error != EROFS && error != ENOTSUP;
}

}  // namespace

AtomicFile::AtomicFile(fs::path target) : target_(std::move(target)) {
  const FileTarget place = follow_links(target_);
  place_ = place.path;
  struct stat status {};
  const bool exists = ::stat(target_.c_str(), &status) == 0;
  if (!exists && (errno != ENOENT || !place_.has_filename())) fail_with("open");
  if (exists && !(S_ISREG(status.st_mode) && is_same_file(status, place_) && !place.is_descriptor)) {
    const int how = place.is_descriptor ? O_APPEND : O_TRUNC;
    descriptor_ = ::open(target_.c_str(), O_WRONLY | how | O_CLOEXEC | O_NOCTTY);
    if (descriptor_ < 0) fail_with("open");
    return;
  }
  if (exists) kept_ = Attributes{status.st_mode & 07777u, status.st_uid, status.st_gid};
  remove_stale(place_);
  open_temporary();
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  ::close(descriptor_);
}

void AtomicFile::open_temporary() {
  // A file of a mode that others may not read is not theirs to read while it is written either.
  const mode_t mode = kept_ ? 0600 : 0644;
  while (true) {
    temporary_ = folder_of(place_) / (name_start(place_) + random_digits().append(kEnding));
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (descriptor_ < 0 && errno == EEXIST) continue;
    if (descriptor_ < 0) fail_with("open");
    lock(descriptor_);
    if (!is_unlinked(descriptor_)) return;  // nobody took it for a stale one before it was locked
    ::close(descriptor_);
    descriptor_ = -1;
  }
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

void AtomicFile::keep_attributes() const {
  if (!kept_) return;
  // A process that may not give files away leaves its own owner, for whom a set-id bit is not meant.
  constexpr auto kSameOwner = static_cast<uid_t>(-1);
  mode_t mode = kept_->mode;
  if (::fchown(descriptor_, kept_->owner, kept_->group) != 0) {
    mode &= 01777u;
    if (::fchown(descriptor_, kSameOwner, kept_->group) != 0) mode &= ~070u;  // rights of another group
  }
  if (::fchmod(descriptor_, mode) == 0) return;
  struct stat status {};  // file systems without modes
  if (::fstat(descriptor_, &status) != 0 || (status.st_mode & 0777u & ~mode) != 0)
    fail_with("set the mode of");
}

void AtomicFile::commit() {
  keep_attributes();
  if (::fsync(descriptor_) != 0 && can_flush(errno)) fail_with("flush");
  const bool direct = temporary_.empty();
  // The lock is held until the file has its name: before that it could be taken for a stale one.
  if (!direct && ::rename(temporary_.c_str(), place_.c_str()) != 0) fail_with("finish");
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (direct && closed != 0) fail_with("finish");
  if (direct) return;
  const int folder = ::open(folder_of(place_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;  // one that may be written to but not read
  const int flushed = ::fsync(folder);
  const int reason = errno;
  ::close(folder);
  errno = reason;
  if (flushed != 0 && can_flush(reason)) fail_with("flush the folder of");
}

void AtomicFile::fail_with(const char* doing) const {
  fail("base.AtomicFile", "could not ", doing, " '", target_.string(), "': ", std::strerror(errno));
}

}  // namespace ulp
