// Winograd's 8-bit convolution under AVX2.
#include "ulp/kernels/isa/vec256.h"
// after the vector type
#include "ulp/kernels/conv/winograd_body.h"

namespace ulp::kernels {

using Sums = DotI16Sums<Vec256>;
const WinogradKernels kWinogradU8Avx2 = {
    "u8_winograd_avx2", 8, transform_input<Vec256>, {ULP_TILES_6(Sums, 2)}, finish_output<Vec256>};

}  // namespace ulp::kernels
