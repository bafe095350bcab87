// Memory on cache lines, and the rounding of sizes to them; internal to the room.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace ulp::kernels {

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int64_t ceil_div(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

/// 64-byte aligned zeroed memory, fixed size.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t bytes);
  uint8_t* data() const { return data_.get(); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  std::unique_ptr<uint8_t, Free> data_;
};

}  // namespace ulp::kernels
