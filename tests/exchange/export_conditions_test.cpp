// A graph that follows numbers of a buffer becomes an engine or a file only while the buffer holds them.
#include <torch/torch.h>

#include "captured_function.h"
#include "error_of.h"
#include "temporary_folder.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/lower/lower.h"

namespace ulp::test {

namespace {

struct SwitchedNet : torch::nn::Module {
  at::Tensor twice = register_buffer("twice", torch::tensor(true));
  at::Tensor forward(const at::Tensor& x) { return twice.item<bool>() ? x * 2 : x; }
};

}  // namespace

TEST(ExportConditions, AreAskedBeforeAGraphBecomesSomethingElse) {
  SwitchedNet net;
  const auto module = capture(net, {torch::randn({2, 4})});
  const TemporaryFolder folder;
  const auto package = [&] { exchange::export_coreml(*module, folder / "m.mlpackage"); };
  EXPECT_NO_THROW(lower(*module));
  EXPECT_NO_THROW(exchange::export_onnx(*module));
  EXPECT_NO_THROW(exchange::export_tflite(*module));
  EXPECT_NO_THROW(exchange::export_pt2(*module));
  EXPECT_NO_THROW(package());
  net.twice.fill_(false);  // what load_model() may do
  EXPECT_ERROR(lower(*module), "[lower.lower] expected 'twice' to hold the numbers that it held at capture");
  EXPECT_ERROR(exchange::export_onnx(*module), "[exchange.export_onnx] expected 'twice' to hold");
  EXPECT_ERROR(exchange::export_tflite(*module), "[exchange.export_tflite] expected 'twice' to hold");
  EXPECT_ERROR(exchange::export_pt2(*module), "[exchange.export_pt2] expected 'twice' to hold");
  EXPECT_ERROR(package(), "[exchange.export_coreml] expected 'twice' to hold");
}

}  // namespace ulp::test
