#include "ulp/quant/methods/scale_channels.h"

#include "ulp/quant/methods/rotate_residual.h"

namespace ulp::quant {

std::shared_ptr<graph::GraphModule> scale_channels(const std::shared_ptr<graph::GraphModule>& captured,
                                                   const Recipe& recipe, const Calibrate& data,
                                                   graph::PassReport* report) {
  graph::PassReport whole{.pass = "scale_channels"};
  std::shared_ptr<graph::GraphModule> model = captured;
  const auto add = [&](const graph::PassReport& part) {
    whole.changes.insert(whole.changes.end(), part.changes.begin(), part.changes.end());
    whole.near_misses.insert(whole.near_misses.end(), part.near_misses.begin(), part.near_misses.end());
  };
  graph::PassReport part;
  if (recipe.methods.has(StaticMethod::rotate)) {
    model = rotate_residual(model, &part);
    add(part);
  }
  if (recipe.methods.has(StaticMethod::cle)) {
    model = equalize_layers(model, recipe.methods.replace_relu6, &part);
    add(part);
  }
  if (recipe.methods.has(StaticMethod::smoothquant)) {
    model = smooth_quant(model, data, recipe, &part);
    add(part);
  }
  if (report != nullptr) *report = std::move(whole);
  return model;
}

}  // namespace ulp::quant
