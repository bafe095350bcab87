// The public header of training in several processes: data parallel, ZeRO, tensor parallel, pipeline.
#pragma once

#include "ulp/distributed/bucket_plan.h"
#include "ulp/distributed/data_parallel.h"
#include "ulp/distributed/gradient_total.h"
#include "ulp/distributed/init.h"
#include "ulp/distributed/model_parts.h"
#include "ulp/distributed/pipeline.h"
#include "ulp/distributed/pipeline_schedule.h"
#include "ulp/distributed/process_group.h"
#include "ulp/distributed/random_states.h"
#include "ulp/distributed/shard_files.h"
#include "ulp/distributed/sharded_optimizer.h"
#include "ulp/distributed/split.h"
#include "ulp/distributed/stage_plan.h"
#include "ulp/distributed/tensor_parallel.h"
#include "ulp/distributed/tensor_parallel_ops.h"
