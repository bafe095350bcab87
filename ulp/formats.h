// The public header of number formats: from fp32 to fp4, block formats, and conversions to and from each of them.
#pragma once

#include "ulp/formats/block.h"
#include "ulp/formats/convert.h"
#include "ulp/formats/data_type.h"
#include "ulp/formats/format.h"
#include "ulp/formats/ggml_block.h"
#include "ulp/formats/random_bits.h"
