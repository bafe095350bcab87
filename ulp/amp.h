// The public header of automatic mixed precision: autocast, loss scaling, the fused optimizer, products by oneDNN,
// learning-rate schedules.
// Training in fp8 and int8 is in ulp/fp8.h, the numerics watch in ulp/watch.h.
#pragma once

#include "ulp/amp/autocast/autocast.h"
#include "ulp/amp/autocast/explain.h"
#include "ulp/amp/autocast/keras_policy.h"
#include "ulp/amp/autocast/op_policy.h"
#include "ulp/amp/autocast/precision.h"
#include "ulp/amp/optimizer/accumulate.h"
#include "ulp/amp/optimizer/capturable_step.h"
#include "ulp/amp/optimizer/fused_optimizer.h"
#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/amp/optimizer/graphed_step.h"
#include "ulp/amp/optimizer/schedule.h"
#include "ulp/amp/optimizer/schedule_rule.h"
#include "ulp/amp/optimizer/training_memory.h"
#include "ulp/amp/optimizer/update_rule.h"
#include "ulp/amp/products/onednn_products.h"
#include "ulp/amp/scaling/grad_scaler.h"
#include "ulp/amp/scaling/make_scaler.h"
#include "ulp/amp/scaling/scale_policy.h"
#include "ulp/amp/threads/adaptive_threads.h"
