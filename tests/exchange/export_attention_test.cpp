// Attention with masks that are added, in files: a query that sees no key has what LibTorch gives.
#include <torch/torch.h>

#include <limits>

#include "coreml_run.h"
#include "temporary_folder.h"
#include "tflite_run.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"

namespace ulp::test {

namespace {

/// Attention among the rows of x, with a mask that the model makes of them: -inf, or a number, where the
/// first feature is above a bound.
struct FileAttention : torch::nn::Module {
  bool written = false, of_keys = false;
  double hidden = 0, bound = 0;
  at::Tensor forward(at::Tensor x) {
    const at::Tensor q = x.unsqueeze(1), v = q.tanh();
    const at::Tensor row = x.select(2, 0) > bound;
    const at::Tensor where = of_keys ? row.view({-1, 1, 1, x.size(1)}) : row.view({-1, 1, x.size(1), 1});
    const at::Tensor mask = torch::zeros({}).masked_fill(where, hidden);
    if (!written)
      return torch::scaled_dot_product_attention(q, q, v, mask + torch::zeros({x.size(1), x.size(1)}));
    return (q.matmul(q.transpose(-2, -1)) + mask).softmax(-1).matmul(v);
  }
};

bool same_file_numbers(const at::Tensor& got, const at::Tensor& want) {
  return got.isnan().equal(want.isnan()) && torch::allclose(got.nan_to_num(), want.nan_to_num(), 1e-5, 1e-5);
}

TEST(ExportAttention, QueriesThatSeeNoKey) {
  torch::manual_seed(6);
  const torch::NoGradGuard no_grad;
  const double lowest = std::numeric_limits<float>::lowest();
  for (const double hidden : {-std::numeric_limits<double>::infinity(), -1e9, lowest}) {
    for (const bool written : {false, true}) {
      for (const bool of_keys : {false, true}) {
        for (const double bound : {-100.0, 0.0}) {  // hides all, hides some
          SCOPED_TRACE(testing::Message() << hidden << " written " << written << " of keys " << of_keys);
          FileAttention model;
          model.written = written;
          model.of_keys = of_keys;
          model.hidden = hidden;
          model.bound = bound;
          model.eval();
          const at::Tensor x = torch::randn({2, 5, 4});
          const auto module = capture(model, {x});
          module->eval();
          const at::Tensor want = model.forward(x);
          const auto back = exchange::import_onnx(exchange::export_onnx(*module), "model.onnx");
          EXPECT_TRUE(same_file_numbers(back->forward(x), want));
          const auto file = read_tflite(exchange::export_tflite(*module, {.batch = 2}));
          const at::Tensor lite = TfliteRun(*file).run({x}).at(0);
          EXPECT_TRUE(
              same_file_numbers(lite.sizes() == want.sizes() ? lite : lite.permute({0, 3, 1, 2}), want))
              << lite << want;
          const TemporaryFolder folder;
          exchange::export_coreml(*module, folder / "m.mlpackage", {.batch = 2});
          const MilModel mil = read_coreml(folder / "m.mlpackage");
          EXPECT_TRUE(same_file_numbers(MilRun(mil).run(x), want));
        }
      }
    }
  }
}

}  // namespace

}  // namespace ulp::test
