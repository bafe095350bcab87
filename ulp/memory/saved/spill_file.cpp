#include "ulp/memory/saved/spill_file.h"

#include <ATen/ops/empty_strided.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ulp/base/error.h"

namespace ulp::memory {
namespace {

/// Bytes that may be on their way before write() waits.
constexpr int64_t kMostUnderWay = int64_t{64} << 20;

/// All of it, in pieces as the system gives or takes them. The error as text; empty for none.
template <typename Call, typename Pointer>
std::string transfer(const Call& call, int descriptor, Pointer* data, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    const ssize_t done = call(descriptor, data, static_cast<size_t>(bytes), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done < 0 ? std::strerror(errno) : "end of file";
    data += done;
    bytes -= done;
    offset += done;
  }
  return {};
}

}  // namespace

std::shared_ptr<SpillFile> SpillFile::open(const std::string& folder) {
  return std::shared_ptr<SpillFile>(new SpillFile(folder));
}

SpillFile::SpillFile(const std::string& folder)
    : nameless_("memory.SpillFile", folder), thread_([this] { work(); }) {}

SpillFile::~SpillFile() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.get_id() == std::this_thread::get_id()) {  // it held the last entry
    *ended_by_own_thread_ = true;
    thread_.detach();
  } else {
    thread_.join();
  }
}

void SpillFile::check() const {
  if (!error_.empty())
    fail_file("memory.SpillFile", "expected room in '", nameless_.folder(),
              "' for what is kept, got: ", error_);
}

int64_t SpillFile::bytes_written() const {
  const std::lock_guard lock(mutex_);
  return written_;
}

int64_t SpillFile::size() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

// --- space ------------------------------------------------------------------------------------------------

int64_t SpillFile::allocate(int64_t bytes) {
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->second < bytes) continue;
    const int64_t offset = hole->first, rest = hole->second - bytes;
    holes_.erase(hole);
    if (rest > 0) holes_[offset + bytes] = rest;
    return offset;
  }
  end_ += bytes;
  return end_ - bytes;
}

void SpillFile::release(int64_t offset, int64_t bytes) {
  auto hole = holes_.emplace(offset, bytes).first;
  const auto next = std::next(hole);
  if (next != holes_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    holes_.erase(next);
  }
  if (hole == holes_.begin()) return;
  const auto before = std::prev(hole);
  if (before->first + before->second != hole->first) return;
  before->second += hole->second;
  holes_.erase(hole);
}

// --- the thread -------------------------------------------------------------------------------------------

void SpillFile::work() {
  const auto ended = std::make_shared<bool>(false);
  std::unique_lock lock(mutex_);
  ended_by_own_thread_ = ended;
  while (true) {
    changed_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
    if (closing_) return;
    const Job job = jobs_.front();
    jobs_.pop_front();
    // The last owner of an entry must not be this thread with the lock: ~Entry() takes it.
    const c10::DebugInfoGuard counted(job.counted);
    std::shared_ptr<Entry> entry = job.entry.lock();
    if (entry) job.writes ? write_now(entry, lock) : read_now(entry, lock);
    lock.unlock();
    entry.reset();
    if (*ended) return;
    changed_.notify_all();
    lock.lock();
  }
}

void SpillFile::write_now(const std::shared_ptr<Entry>& entry, std::unique_lock<std::mutex>& lock) {
  at::Tensor tensor = entry->waiting_;
  if (!tensor.defined() || !error_.empty()) return;
  entry->offset_ = allocate(entry->bytes_);
  const int64_t offset = entry->offset_;
  lock.unlock();
  std::string error = transfer(::pwrite, nameless_.descriptor(),
                               static_cast<const char*>(tensor.const_data_ptr()), entry->bytes_, offset);
  lock.lock();
  if (!error.empty()) {
    error_ = std::move(error);
    return;  // the tensor stays where it is
  }
  written_ += entry->bytes_;
  under_way_ -= entry->bytes_;
  entry->waiting_.reset();
  lock.unlock();
  tensor.reset();
  lock.lock();
}

void SpillFile::read_now(const std::shared_ptr<Entry>& entry, std::unique_lock<std::mutex>& lock) {
  if (entry->waiting_.defined() || entry->ahead_.defined() || !entry->announced_) return;
  lock.unlock();
  at::Tensor tensor = entry->make();
  std::string error = transfer(::pread, nameless_.descriptor(), static_cast<char*>(tensor.mutable_data_ptr()),
                               entry->bytes_, entry->offset_);
  lock.lock();
  if (error.empty()) entry->ahead_ = std::move(tensor);
  entry->announced_ = false;
  if (!error.empty()) error_ = std::move(error);
}

std::shared_ptr<SpillFile::Entry> SpillFile::write(const at::Tensor& dense) {
  auto entry = std::make_shared<Entry>(shared_from_this(), dense);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return under_way_ <= kMostUnderWay || !error_.empty(); });
  check();
  under_way_ += entry->bytes_;
  entry->waiting_ = dense;
  jobs_.push_back({entry, true});
  lock.unlock();
  changed_.notify_all();
  return entry;
}

// --- entries ----------------------------------------------------------------------------------------------

SpillFile::Entry::Entry(std::shared_ptr<SpillFile> file, const at::Tensor& dense)
    : file_(std::move(file)),
      sizes_(dense.sizes().vec()),
      strides_(dense.strides().vec()),
      dtype_(dense.scalar_type()),
      bytes_(dense.numel() * static_cast<int64_t>(dense.itemsize())) {}

SpillFile::Entry::~Entry() {
  const std::lock_guard lock(file_->mutex_);
  if (waiting_.defined())
    file_->under_way_ -= bytes_;
  else
    file_->release(offset_, bytes_);
  file_->changed_.notify_all();
}

at::Tensor SpillFile::Entry::make() const {
  return at::empty_strided(sizes_, strides_, dtype_);
}

void SpillFile::Entry::announce() {
  const std::lock_guard lock(file_->mutex_);
  if (announced_ || waiting_.defined() || ahead_.defined()) return;
  announced_ = true;
  file_->jobs_.push_back({weak_from_this(), false});
  file_->changed_.notify_all();
}

at::Tensor SpillFile::Entry::get() {
  std::unique_lock lock(file_->mutex_);
  if (waiting_.defined()) return waiting_;
  file_->changed_.wait(lock, [this] { return !announced_ || !file_->error_.empty(); });
  file_->check();
  if (ahead_.defined()) return std::move(ahead_);
  lock.unlock();
  at::Tensor tensor = make();
  const std::string error = transfer(::pread, file_->nameless_.descriptor(),
                                     static_cast<char*>(tensor.mutable_data_ptr()), bytes_, offset_);
  if (!error.empty())
    fail_file("memory.SpillFile", "expected to read ", bytes_, " bytes again, got: ", error);
  return tensor;
}

}  // namespace ulp::memory
