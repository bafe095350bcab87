#include "ulp/amp/int8/int8_recipe.h"

namespace ulp::amp {

void Int8LayerRecipe::visit_fields(FieldVisitor& visit) {
  visit({"method", "Which numbers share a scale, and which products are in int8"}, method);
  visit({"output", "With rowwise: the product of the forward pass is in int8"}, output);
  visit({"grad_input", "With rowwise: the product for the input's gradient is in int8"}, grad_input);
  visit({"grad_weight", "With rowwise: the product for the weight's gradient is in int8"}, grad_weight);
  visit({"stochastic", "Round gradients at random"}, stochastic);
}

void Int8LayerRecipe::validate() const {
  if (method == Int8Method::rowwise || (output && grad_input && grad_weight)) return;
  const char* field = !output ? "output" : !grad_input ? "grad_input" : "grad_weight";
  fail("amp.Int8LayerRecipe", "expected ", field, " to be true with method ", word_of(method),
       ", got false; rowwise alone leaves products out");
}

}  // namespace ulp::amp
