// Networks that PyTorch exported: results, gradients and buffers bit for bit, at other sizes than those of the export. The
// recorded bits are those of an AMD processor; on Intel's LibTorch takes other kernels, whose sums round differently.
#include "ulp/exchange/import_pt2.h"

#include <torch/torch.h>

#include "error_of.h"
#include "pt2_archive.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/npy.h"

namespace ulp::test {

namespace {

using exchange::import_pt2;
using Module = std::shared_ptr<graph::GraphModule>;
constexpr uint64_t kSeed = 3;  // of make_pt2.py

bool on_intel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

/// The recorded numbers; where LibTorch has other kernels, but for the rounding of sums.
bool as_recorded(const at::Tensor& own, const at::Tensor& theirs) {
  if (!on_intel() || !own.is_floating_point()) return torch::equal(own, theirs);
  // Gradients that cancel, as of a bias before a batch norm, are nothing but rounding.
  const double largest = theirs.numel() == 0 ? 0 : std::max(0.1, theirs.abs().max().item<double>());
  return own.sizes() == theirs.sizes() && own.dtype() == theirs.dtype() &&
         torch::allclose(own, theirs, 0, 1e-5 * largest);
}

/// One run of a network of tests/golden at a batch.
void expect_bits_of_pytorch(const std::string& name, int64_t batch) {
  SCOPED_TRACE(name + " at batch " + std::to_string(batch));
  const auto recorded = io::load_npz(golden_pt2(name + "." + std::to_string(batch) + ".npz"));
  const Module module = import_pt2(golden_pt2(name + ".pt2"));
  torch::manual_seed(kSeed);
  const std::vector<at::Tensor> results = module->forward_all({recorded.at("x0")});
  at::Tensor loss = torch::zeros({});
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(as_recorded(results[i], recorded.at("y" + std::to_string(i)))) << "result " << i;
    loss = i == 0 ? results[i].square().mean() : loss + results[i].square().mean();
  }
  loss.backward();
  size_t gradients = 0;
  for (const auto& [key, theirs] : recorded) {
    const std::string own = key.substr(key.find('.') + 1);
    if (key.starts_with("g.")) {
      ASSERT_TRUE(module->named_parameters().contains(own)) << own;
      EXPECT_TRUE(as_recorded(module->named_parameters()[own].grad(), theirs)) << own;
      ++gradients;
    } else if (key.starts_with("b.") && !module->named_buffers().contains(own)) {
      // The count of batches, which only training reads.
      EXPECT_TRUE(own.ends_with("num_batches_tracked") && !module->is_training()) << own;
    } else if (key.starts_with("b.")) {
      EXPECT_TRUE(as_recorded(module->named_buffers()[own], theirs)) << own;
    }
  }
  EXPECT_EQ(gradients, module->named_parameters().size());
}

}  // namespace

/// On one thread, as PyTorch ran.
class ImportPt2 : public testing::Test {
 protected:
  void SetUp() override { torch::set_num_threads(1); }
  void TearDown() override { torch::set_num_threads(threads_); }
  int threads_ = torch::get_num_threads();
};

TEST_F(ImportPt2, GivesTheBitsOfPyTorch) {
  for (const char* name : {"images", "images.train", "texts"}) {
    for (const int64_t batch : {1, 7, 64}) expect_bits_of_pytorch(name, batch);
  }
}

TEST_F(ImportPt2, KeepsNamesModesAndFreeSizes) {
  const Module images = import_pt2(golden_pt2("images.pt2"));
  EXPECT_FALSE(images->is_training());
  for (const char* name :
       {"conv.weight", "conv.bias", "norm.weight", "norm.bias", "head.weight", "head.bias"})
    EXPECT_TRUE(images->named_parameters().contains(name)) << name;
  for (const char* name : {"norm.running_mean", "norm.running_var", "shift", "places"})
    EXPECT_TRUE(images->named_buffers().contains(name)) << name;
  EXPECT_TRUE(import_pt2(golden_pt2("images.train.pt2"))->is_training());
  const Module texts = import_pt2(golden_pt2("texts.pt2"));
  ASSERT_EQ(std::as_const(*texts).graph().free.size(), 1U);
  EXPECT_EQ(std::as_const(*texts).graph().free[0].name, "ids.1");
  EXPECT_EQ(std::as_const(*texts).graph().free[0].max, 12);
  EXPECT_EQ(std::as_const(*texts).graph().free[0].min, 2);
  const Module shorter = import_pt2(golden_pt2("texts.pt2"), {.sizes = {{"ids.1", {.min = 1, .max = 6}}}});
  EXPECT_EQ(std::as_const(*shorter).graph().free[0].max, 6);
}

TEST_F(ImportPt2, ANetworkOfEvalModeTrainsInTrainMode) {
  const Module module = import_pt2(golden_pt2("images.pt2"));
  module->train();
  const at::Tensor before = module->named_buffers()["norm.running_mean"].clone();
  const auto results = module->forward_all({torch::randn({5, 2, 4, 4})});
  results[0].square().mean().backward();
  EXPECT_FALSE(torch::equal(module->named_buffers()["norm.running_mean"], before));
  const auto again = module->forward_all({torch::ones({5, 2, 4, 4})}),
             other = module->forward_all({torch::ones({5, 2, 4, 4})});
  EXPECT_FALSE(torch::equal(again[0], other[0])) << "dropout drops";
}

TEST_F(ImportPt2, ADictionaryKeepsItsNames) {
  const Module module = import_pt2(golden_pt2("images.pt2"));
  const auto results = module->call<std::map<std::string, at::Tensor>>(torch::randn({3, 2, 4, 4}));
  ASSERT_TRUE(results.contains("logits") && results.contains("features"));
  EXPECT_EQ(results.at("features").sizes(), (std::vector<int64_t>{9}));
}

TEST_F(ImportPt2, BytesAreAsAFile) {
  const std::string bytes = file_bytes(golden_pt2("texts.pt2"));
  const at::Tensor ids = torch::ones({3, 4}, torch::kLong);
  EXPECT_TRUE(torch::equal(import_pt2(bytes, "texts.pt2")->forward(ids),
                           import_pt2(golden_pt2("texts.pt2"))->forward(ids)));
}

TEST_F(ImportPt2, LeavesAsOnnx) {
  EXPECT_GT(exchange::export_onnx(*import_pt2(golden_pt2("images.pt2"))).size(), 1000U);
  EXPECT_GT(exchange::export_onnx(*import_pt2(golden_pt2("texts.pt2"))).size(), 1000U);
}

}  // namespace ulp::test
