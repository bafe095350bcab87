#define ULP_RECURRENT_CELL_OPS kRecurrentCellOpsPortable
#include "ulp/kernels/training/recurrent_cells_body.h"
