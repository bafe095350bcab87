// A model of your own for the tool: this program makes a file of it, and every command of `ulp` takes that file.
//   own_model
//   ulp train --init own_model.safetensors --data fashion-mnist --precision bf16 --epochs 3 --out trained.safetensors
//   ulp quantize trained.safetensors --data fashion-mnist --out own_model.int8.ulp
//   ulp bench trained.safetensors own_model.int8.ulp
#include <ulp/app.h>
#include <ulp/ulp.h>

#include "own_net.h"

int main() {
  const auto model =
      std::make_shared<OwnNet>();  // torch::load(model, "weights.pt") where it has learned something
  const auto graph = ulp::capture(model, {torch::randn({2, 1, 28, 28})});
  const ulp::app::ModelSpec takes = {
      .name = "own_net", .in_channels = 1, .num_classes = 10, .image_size = 28};
  ulp::app::save_model_file("own_model.safetensors", *graph, takes);
}
