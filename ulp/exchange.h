// The public header of model files of other runtimes: ONNX, TensorFlow Lite, Core ML, torch.export and GGUF.
#pragma once

#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/gguf.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/import_pt2.h"
#include "ulp/exchange/listed_file.h"
#include "ulp/exchange/size_range.h"
