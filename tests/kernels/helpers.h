// Shared by the kernel tests: random data, a thread pool, and the command that repeats the running test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ulp/base/parallel.h"
#include "ulp/kernels/elementwise/typed_rows.h"
#include "ulp/kernels/isa/isa.h"

namespace ulp::kernels::test {

inline const SerialParallel kSerial;
inline constexpr double kUlp = 0x1p-24;  ///< of f32, half a unit in the last place of 1
inline constexpr float kInf = std::numeric_limits<float>::infinity();

inline std::string repeat_command() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string("repeat with: bin/test_kernels --gtest_filter='") + info->test_suite_name() + "." +
         info->name() + "'";
}

/// Starts its threads anew for every run: slow, but what is tested is only that any split gives the same
/// bits.
class ThreadParallel final : public Parallel {
 public:
  explicit ThreadParallel(int workers) : workers_(workers) {}
  int workers() const override { return workers_; }
  void run(int64_t tasks, FunctionRef<void(int64_t, int)> task) const override {
    std::atomic<int64_t> next{0};
    std::vector<std::thread> threads;
    for (int worker = 0; worker < workers_; ++worker) {
      threads.emplace_back([&, worker] {
        for (int64_t i = next++; i < tasks; i = next++) task(i, worker);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  int workers_;
};

inline std::vector<float> random_floats(int64_t n, uint32_t seed, float low = -1, float high = 1) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> draw(low, high);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& v : out) v = draw(engine);
  return out;
}

template <typename T>
std::vector<T> random_ints(int64_t n, uint32_t seed, int low, int high) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> draw(low, high);
  std::vector<T> out(static_cast<size_t>(n));
  for (T& v : out) v = static_cast<T>(draw(engine));
  return out;
}

/// Scratch of at least so many bytes, on a cache line.
class Workspace {
 public:
  explicit Workspace(size_t bytes) : lines_(bytes / sizeof(Line) + 1) {}
  void* data() { return lines_.data(); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
};

/// Ends of a page-sized guard are not available everywhere; canaries on both sides of the buffer show a write
/// outside of it.
template <typename T>
class Guarded {
 public:
  /// The array begins `shift` elements behind a multiple of 64 bytes; 16 bytes unless told, as on a heap.
  explicit Guarded(int64_t n, int64_t shift = 16 / sizeof(T))
      : n_(static_cast<size_t>(n)), begin_(kGuard + static_cast<size_t>(shift) * sizeof(T)) {
    lines_.resize((end() + kGuard + sizeof(Line) - 1) / sizeof(Line));
    std::memset(lines_.data(), kCanary, lines_.size() * sizeof(Line));
  }
  T* data() { return reinterpret_cast<T*>(bytes() + begin_); }
  std::vector<T> values() { return {data(), data() + n_}; }
  bool intact() {
    const auto canary = [](uint8_t byte) { return byte == kCanary; };
    return std::all_of(bytes(), bytes() + begin_, canary) &&
           std::all_of(bytes() + end(), bytes() + lines_.size() * sizeof(Line), canary);
  }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  static constexpr size_t kGuard = 256;
  static constexpr uint8_t kCanary = 0xa5;
  uint8_t* bytes() { return lines_.data()->bytes; }
  size_t end() const { return begin_ + n_ * sizeof(T); }
  size_t n_, begin_;
  std::vector<Line> lines_;
};

/// Numbers as a buffer of `format` holds them.
class TypedBuffer {
 public:
  TypedBuffer(const ElementFormat& format, const std::vector<float>& values)
      : format_(format), count_(values.size()) {
    bytes_.resize(count_ * static_cast<size_t>(element_bytes(format.type)) + 1);
    const TypedRows rows("test", format, Isa::portable);
    if (format.is_f32()) std::memcpy(bytes_.data(), values.data(), count_ * sizeof(float));
    rows.write(values.data(), bytes_.data(), 0, static_cast<int64_t>(count_));
  }
  void* data() { return bytes_.data(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  /// The numbers that it holds.
  std::vector<float> values() const {
    std::vector<float> values(count_);
    const auto n = static_cast<int64_t>(count_);
    const float* read = TypedRows("test", format_, Isa::portable).read(bytes_.data(), 0, n, values.data());
    return {read, read + count_};
  }

 private:
  ElementFormat format_;
  size_t count_;
  std::vector<std::byte> bytes_;
};

/// f32, bf16 and codes.
inline std::vector<ElementFormat> element_formats() {
  return {{}, {DataType::bf16, {}}, {DataType::u8, {0.03F, 120}}};
}

inline std::string isa_name(const ::testing::TestParamInfo<Isa>& info) {
  return to_string(info.param);
}

}  // namespace ulp::kernels::test
