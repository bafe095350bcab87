// What a QatModule holds beside its graph. Internal.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "ulp/quant/qat/qat.h"
#include "ulp/quant/qat/qat_layer.h"
#include "ulp/quant/scheme/quantizer.h"

namespace ulp::quant {

struct QatParts {
  Recipe recipe;
  graph::PassReport report;
  std::shared_ptr<QatState> state = std::make_shared<QatState>();
  std::shared_ptr<graph::Graph> source;  ///< as captured, with the tensors that are trained
  std::map<std::string, std::shared_ptr<ActivationQuantizer>>
      activations;                                          ///< by value of the inference form
  std::map<std::string, std::shared_ptr<QatLayer>> layers;  ///< by node of the inference form
};

}  // namespace ulp::quant
