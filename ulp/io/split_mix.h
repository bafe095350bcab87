// A small random generator whose numbers are the same on every machine; not installed.
#pragma once

#include <cstdint>

namespace ulp::io {

/// SplitMix64 (Steele, Lea and Flood 2014): small, seedable anywhere, and the same on every platform, which
/// std::shuffle and the standard distributions are not.
class SplitMix {
 public:
  SplitMix(uint64_t seed, uint64_t epoch, uint64_t stream) : state_(seed) {
    state_ = operator()() ^ epoch;
    state_ = operator()() ^ stream;
  }
  uint64_t operator()() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  /// In [0, bound); the bias is below bound / 2^64.
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(static_cast<unsigned __int128>(operator()()) * static_cast<uint64_t>(bound) >>
                                64);
  }

 private:
  uint64_t state_;
};

}  // namespace ulp::io
