// Stands for CUDA's header of this name, see cuda_runtime_api.h.
#pragma once

#include "cuda_runtime_api.h"
