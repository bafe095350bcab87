#define ULP_RECURRENT_CELL_OPS kRecurrentCellOpsAvx2
#include "ulp/kernels/training/recurrent_cells_body.h"
