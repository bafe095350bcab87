// Everything of ulp that a training program uses. Light: it does not include torch/torch.h. Each room has a
// header of its own (ulp/quant.h), which a file that uses one room includes instead. Rooms that few programs
// use are not in here: ulp/distributed.h, ulp/train.h, ulp/measure.h, ulp/formats.h and ulp/app.h. Nor are
// rooms that an installation leaves out (docs/packages.md).
#pragma once

#include "ulp/amp.h"
#include "ulp/app/check/road_report.h"
#include "ulp/base/error.h"
#include "ulp/base/interrupt.h"
#include "ulp/graph.h"
#include "ulp/io.h"
#include "ulp/lora.h"
#include "ulp/lower.h"
#include "ulp/models.h"
#include "ulp/quant.h"
#include "ulp/runtime.h"
#include "ulp/version.h"

#if __has_include("ulp/distill.h")
#include "ulp/distill.h"
#endif
#if __has_include("ulp/exchange.h")
#include "ulp/exchange.h"
#endif
#if __has_include("ulp/fp8.h")
#include "ulp/fp8.h"
#include "ulp/watch.h"
#endif
#if __has_include("ulp/memory.h")
#include "ulp/memory.h"
#endif
#if __has_include("ulp/prune.h")
#include "ulp/prune.h"
#endif
