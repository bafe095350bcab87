// Everything of ulp that a training program uses. Light: it does not include torch/torch.h.
#pragma once

#include "ulp/amp/accumulate.h"
#include "ulp/amp/autocast.h"
#include "ulp/amp/explain.h"
#include "ulp/amp/grad_scaler.h"
#include "ulp/amp/keras_policy.h"
#include "ulp/amp/make_scaler.h"
#include "ulp/amp/op_policy.h"
#include "ulp/amp/precision.h"
#include "ulp/amp/schedule.h"
#include "ulp/graph/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/pass.h"
#include "ulp/lower/lower.h"
#include "ulp/quant/quantize.h"
#include "ulp/runtime/engine.h"
#include "ulp/runtime/plan.h"
