#define ULP_VECTOR_BYTES 64
#define ULP_STEP_IMAGE_OPS kStepImageOpsAvx512
#include "ulp/kernels/training/step_images_body.h"
