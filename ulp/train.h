// The public header of the training loop: tasks, the trainer, its checkpoints, compiled steps, evaluation.
#pragma once

#include "ulp/train/checkpointing.h"
#include "ulp/train/compile/compiled_step.h"
#include "ulp/train/compile/loss_function.h"
#include "ulp/train/evaluate.h"
#include "ulp/train/fp8_task.h"
#include "ulp/train/int8_task.h"
#include "ulp/train/learning.h"
#include "ulp/train/model_part.h"
#include "ulp/train/sharded_model.h"
#include "ulp/train/task.h"
#include "ulp/train/tickets.h"
#include "ulp/train/train_options.h"
#include "ulp/train/trainer.h"
#include "ulp/train/watch_observer.h"
#include "ulp/train/watch_report.h"
