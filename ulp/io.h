// The public header of files and data: safetensors, graphs, checkpoints, pretrained weights, data sets, tokenizers.
#pragma once

#include "ulp/io/batch_loader.h"
#include "ulp/io/checkpoint.h"
#include "ulp/io/dataset.h"
#include "ulp/io/graph_file.h"
#include "ulp/io/npy.h"
#include "ulp/io/pretrained_weights.h"
#include "ulp/io/safetensors.h"
#include "ulp/io/sample_order.h"
#include "ulp/io/text_dataset.h"
#include "ulp/io/tokenizer/tokenizer.h"
#include "ulp/io/tokenizer/train_tokenizer.h"
