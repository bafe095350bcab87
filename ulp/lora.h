// The public header of low-rank adapters (LoRA, QLoRA): adding, merging, and their files.
#pragma once

#include "ulp/lora/adapter_config.h"
#include "ulp/lora/adapter_file.h"
#include "ulp/lora/add_lora.h"
#include "ulp/lora/frozen_linear.h"
#include "ulp/lora/frozen_weight.h"
#include "ulp/lora/lora_model.h"
#include "ulp/lora/lora_options.h"
#include "ulp/lora/merge_lora.h"
#include "ulp/lora/nf4.h"
