// Random bits by counter: the bits of element i depend on the key and on i alone, so that rounding an array
// stochastically gives the same result in any order and on any number of threads.
//
// The generator is Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011): one counter of 128 bits gives four words of 32 bits. The counter's low half numbers the block,
// its high half is the key's stream; the generator's key is the seed. Plain functions with internal linkage,
// so that the files of each instruction set can use them.
#pragma once

#include <cstdint>

namespace ulp::formats {

/// Which sequence: a seed, and a stream below it (say, the number of the training step).
struct RandomKey {
  uint64_t seed = 0;
  uint64_t stream = 0;
};

/// The four words of one Philox block.
struct RandomBlock {
  uint32_t word[4];
};

/// Elements that share sixteen blocks, see random_bits().
constexpr int64_t kRandomGroup = 64;

/// One round of Philox 4x32 (Salmon et al. 2011).
static inline __attribute__((always_inline)) void philox_round(RandomBlock& state, uint32_t key0,
                                                               uint32_t key1) {
  const uint64_t product0 = uint64_t{0xD2511F53U} * state.word[0];
  const uint64_t product1 = uint64_t{0xCD9E8D57U} * state.word[2];
  state = {{static_cast<uint32_t>(product1 >> 32) ^ state.word[1] ^ key0, static_cast<uint32_t>(product1),
            static_cast<uint32_t>(product0 >> 32) ^ state.word[3] ^ key1, static_cast<uint32_t>(product0)}};
}

/// Block number `block` of the sequence.
static inline __attribute__((always_inline)) RandomBlock philox_block(RandomKey key, uint64_t block) {
  RandomBlock state{{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                     static_cast<uint32_t>(key.stream), static_cast<uint32_t>(key.stream >> 32)}};
  uint32_t key0 = static_cast<uint32_t>(key.seed), key1 = static_cast<uint32_t>(key.seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    philox_round(state, key0, key1);
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return state;
}

/// The 32 bits of element `index`. Sixteen neighbours take the same word of sixteen neighbouring blocks:
/// element 64 g + 16 w + l has word w of block 16 g + l, which is how vectors of sixteen lanes make them.
static inline uint32_t random_bits(RandomKey key, uint64_t index) {
  return philox_block(key, index / kRandomGroup * 16 + index % 16).word[index / 16 % 4];
}

/// words[i] = random_bits(key, 64 group + i) for i in [0, 64): a sixteenth of the work for each.
static inline void random_bits_of_group(RandomKey key, uint64_t group, uint32_t* __restrict words) {
  for (int lane = 0; lane < 16; ++lane) {
    const RandomBlock block = philox_block(key, group * 16 + static_cast<uint64_t>(lane));
    words[lane] = block.word[0];
    words[lane + 16] = block.word[1];
    words[lane + 32] = block.word[2];
    words[lane + 48] = block.word[3];
  }
}

}  // namespace ulp::formats
