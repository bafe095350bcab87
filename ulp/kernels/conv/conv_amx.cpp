// AMX on the hardware. The instructions are written out: GCC's intrinsics want the tile as a literal, not as
// a template argument, and need no compiler flag this way.
#include "ulp/kernels/conv/amx_body.h"

namespace ulp::kernels {
namespace {

class RealTiles {
 public:
  void configure(const TileConfig& config) {
    // Without the barrier GCC drops the stores to a local configuration.
    __asm__ volatile("" ::"r"(&config) : "memory");
    __asm__ volatile("ldtilecfg (%0)" ::"r"(&config) : "memory");
  }
  void release() { __asm__ volatile("tilerelease" ::: "memory"); }

  template <int T>
  void load(const void* base, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(base), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  void stream(const void* base, int64_t stride) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(base), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  void store(void* base, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(base), "r"(stride), "i"(T) : "memory");
  }
  template <int C, int A, int B>
  void dot_u8() {
    __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }
  template <int C, int A, int B>
  void dot_bf16() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
  }
};

}  // namespace

const AmxKernels kAmxKernels = {"u8_amx", "bf16_amx", amx_run<RealTiles, IntSums<Vec512>>,
                                amx_run<RealTiles, FloatSums<Vec512>>};

}  // namespace ulp::kernels
