#define ULP_VECTOR_BYTES 32
#define ULP_STEP_IMAGE_OPS kStepImageOpsAvx2
#include "ulp/kernels/training/step_images_body.h"
