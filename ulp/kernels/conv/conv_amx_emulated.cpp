// The AMX kernels with the tile instructions in software; for tests, never chosen by itself.
#include "ulp/kernels/conv/amx_body.h"
#include "ulp/kernels/conv/amx_emulated_tiles.h"

namespace ulp::kernels {

const AmxKernels kAmxEmulatedKernels = {"u8_amx_emulated", "bf16_amx_emulated",
                                        amx_run<EmulatedTiles, IntSums<Vec512>>,
                                        amx_run<EmulatedTiles, FloatSums<Vec512>>};

}  // namespace ulp::kernels
