// Static quantization in one call.
#include <torch/utils.h>

#include "ulp/base/error.h"
#include "ulp/quant/quantize_model.h"

namespace ulp::quant {

using graph::GraphModule;
using graph::PassReport;

std::shared_ptr<GraphModule> quantize(const std::shared_ptr<GraphModule>& captured,
                                      const StaticRecipe& recipe, const Calibrate& calibrate,
                                      PassReport* report) {
  if (!calibrate) fail("quant.quantize", "expected a function that runs calibration data, got none");
  const auto prepared = prepare(captured, recipe);
  prepared->eval();
  {
    const at::NoGradGuard no_grad;
    calibrate(*prepared);
  }
  return convert(prepared, report);
}

}  // namespace ulp::quant
