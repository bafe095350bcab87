// Threads that help whoever has work for them: those of a process, which its engines share, or those of one
// pool.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ulp/runtime/engine/pool_job.h"

namespace ulp::runtime {

/// Each caller computes a job of its own; idle threads take pieces of any job that goes on. They do so only
/// while fewer threads compute than there are cores, or than the job wants. Who stays without help loses
/// nothing but time.
class WorkerThreads {
 public:
  /// Threads of their own. They end with the last that holds them, when no job is left. In a child of fork()
  /// those from before, which cannot end there, stay in memory.
  static std::shared_ptr<WorkerThreads> make();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  /// Those that the calling thread shares with all of the process that have its affinity mask: threads
  /// inherit the mask of who starts them. Who holds them need not have a job. A child of fork() has its own.
  static std::shared_ptr<WorkerThreads> of_process();

  /// From now on threads may help with the job. There are as many threads as the most demanding job can use,
  /// and more where several jobs want more and there are cores. `cores`: usable_cores() where the caller
  /// has just asked for it; else 0. Throws std::system_error where the system gives no threads.
  void add(PoolJob& job, int cores = 0);
  /// No thread touches the job afterwards.
  void remove(PoolJob& job);
  /// A run of the job has begun, in so many pieces: wakes those who may help.
  void call(const PoolJob& job, int64_t pieces);
  /// A caller computes, until leave().
  void enter();
  void leave();
  /// False in a child of fork(), which has none of the threads.
  bool are_here() const;

 private:
  WorkerThreads();
  ~WorkerThreads();

  struct Place {
    PoolJob* job = nullptr;
    int worker = 0;
  };

  void serve(size_t index);
  Place take_place(size_t index);
  void give_back(const Place& place);
  void stay(const Place& place, SpinWait& idle);
  /// Without room for `more` threads that compute for the job.
  bool crowded(const PoolJob& job, int more) const;
  void wake(int64_t threads);
  /// Callers that come and go on full cores wake nobody for each moment between.
  bool too_soon();

  const pid_t process_;
  std::atomic<int> cores_ = 0;     ///< 0 until the first job
  std::atomic<int> callers_ = 0;   ///< that compute
  std::atomic<int> helping_ = 0;   ///< threads that hold a place in a job
  std::atomic<int> sleeping_ = 0;  ///< threads that wait for `signal_` to change
  std::atomic<uint32_t> signal_ = 0;
  std::atomic<int64_t> full_at_ = 0;  ///< when callers alone filled the cores, in nanoseconds
  std::atomic<int64_t> woke_at_ = 0;  ///< when somebody was woken soon after that

  std::mutex lock_;               ///< of what follows, and of the places in jobs
  std::condition_variable left_;  ///< somebody gave back a place in a job that ends
  std::vector<PoolJob*> jobs_;
  size_t first_ = 0;    ///< job that is looked at first
  int64_t wanted_ = 0;  ///< threads that all jobs can use together
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ulp::runtime
