// The public header of training with products of 8 and 4 bits: fp8, MX and nvfp4 recipes, and int8 layers.
#pragma once

#include "ulp/amp/fp8/fp8_autocast.h"
#include "ulp/amp/fp8/fp8_layers.h"
#include "ulp/amp/fp8/fp8_layers_of.h"
#include "ulp/amp/fp8/fp8_products.h"
#include "ulp/amp/fp8/fp8_recipe.h"
#include "ulp/amp/fp8/fp8_state.h"
#include "ulp/amp/fp8/to_fp8.h"
#include "ulp/amp/int8/int8_layers.h"
#include "ulp/amp/int8/int8_recipe.h"
#include "ulp/amp/int8/to_int8.h"
