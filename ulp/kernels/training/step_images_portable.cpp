#define ULP_VECTOR_BYTES 16
#define ULP_STEP_IMAGE_OPS kStepImageOpsPortable
#include "ulp/kernels/training/step_images_body.h"
