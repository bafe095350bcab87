// The public header of the reference networks: image classifiers with torchvision's names, language models with Hugging
// Face's.
#pragma once

#include "ulp/models/bert.h"
#include "ulp/models/binary_lenet5.h"
#include "ulp/models/binary_resnet.h"
#include "ulp/models/decoder.h"
#include "ulp/models/distilbert.h"
#include "ulp/models/googlenet.h"
#include "ulp/models/gpt2.h"
#include "ulp/models/image_model.h"
#include "ulp/models/inception_v3.h"
#include "ulp/models/lenet5.h"
#include "ulp/models/lstm.h"
#include "ulp/models/mlp.h"
#include "ulp/models/mobilenet_v2.h"
#include "ulp/models/registry.h"
#include "ulp/models/resnet.h"
#include "ulp/models/shufflenet_v2.h"
#include "ulp/models/text_model.h"
#include "ulp/models/text_registry.h"
#include "ulp/models/unet.h"
