// ulp/ulp.h alone has all rooms that a training program uses: this file only has to compile and link.
#include <torch/torch.h>
#include <ulp/ulp.h>

std::string use_the_umbrella(torch::nn::Sequential model, const torch::Tensor& x) {
  auto captured = ulp::capture(model, {x});
  const ulp::amp::GradScaler scaler;
  ulp::amp::WatchOptions().validate();
  const ulp::amp::Fp8Recipe fp8 = ulp::amp::Fp8Recipe::named("fp8:current");
  const auto small = ulp::prune::prune_channels(*captured, {.share = 0.5});
  const auto loss = ulp::distill::make_loss("kd", {"T=4"});
  ulp::memory::checkpoint(*captured, ulp::memory::plan_sqrt(captured->graph()));
  const auto network = ulp::models::make_mlp();
  const auto codes = ulp::quant::quantize_weights(small.module, ulp::quant::WeightOnlyRecipe{});
  ulp::runtime::Engine engine(ulp::lower(*codes));
  return ulp::exchange::export_onnx(*small.module);
}
