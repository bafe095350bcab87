// A temporary file for tensors that wait for the backward pass. A thread of its own writes them, and reads
// ahead those that are announced.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "ulp/base/anonymous_file.h"
#include "ulp/base/export.h"

namespace ulp::memory {

/// The file has no name in its folder from the moment it is open: it is gone when the process ends, however
/// that happens. Space of tensors that are gone is used again.
class ULP_API SpillFile : public std::enable_shared_from_this<SpillFile> {
 public:
  /// Empty: TMPDIR, or /tmp. Throws ulp::Error where no file can be made.
  static std::shared_ptr<SpillFile> open(const std::string& folder);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  /// A tensor in the file, or on its way there or back.
  class ULP_API Entry : public std::enable_shared_from_this<Entry> {
   public:
    Entry(std::shared_ptr<SpillFile> file, const at::Tensor& dense);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    /// Has it read by the file's thread.
    void announce();
    /// The tensor, of the same sizes and strides. Throws ulp::Error where it cannot be read or was not
    /// written.
    at::Tensor get();

   private:
    friend class SpillFile;
    at::Tensor make() const;
    std::shared_ptr<SpillFile> file_;
    std::vector<int64_t> sizes_, strides_;
    at::ScalarType dtype_;
    int64_t offset_ = 0, bytes_ = 0;
    at::Tensor waiting_;  ///< until it is written
    at::Tensor ahead_;    ///< read ahead
    bool announced_ = false;
  };
  /// Writes a dense CPU tensor. Waits while more than a bound is under way. Throws ulp::Error when the file
  /// failed.
  std::shared_ptr<Entry> write(const at::Tensor& dense);

  int64_t bytes_written() const;
  int64_t size() const;  ///< of the file

 private:
  explicit SpillFile(const std::string& folder);
  void work();
  void write_now(const std::shared_ptr<Entry>& entry, std::unique_lock<std::mutex>& lock);
  void read_now(const std::shared_ptr<Entry>& entry, std::unique_lock<std::mutex>& lock);
  int64_t allocate(int64_t bytes);
  void release(int64_t offset, int64_t bytes);
  void check() const;

  struct Job {
    std::weak_ptr<Entry> entry;
    bool writes;
    /// Of the thread that asked: who counts its tensors counts those made and freed here.
    std::shared_ptr<c10::ThreadLocalDebugInfo> counted = c10::ThreadLocalDebugInfo::current();
  };
  AnonymousFile nameless_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::map<int64_t, int64_t> holes_;  ///< offset to bytes, below end_
  int64_t end_ = 0, under_way_ = 0, written_ = 0;
  std::string error_;
  bool closing_ = false;
  std::shared_ptr<bool> ended_by_own_thread_;  ///< of the thread: this file is gone, touch it no more
  std::thread thread_;
};

}  // namespace ulp::memory
