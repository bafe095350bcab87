// Networks that PyTorch exported, at other sizes than those of the export: results, gradients and buffers are
// those of the archive's operators bit for bit, and those that PyTorch recorded but for the rounding.
#include "ulp/exchange/import_pt2.h"

#include <torch/torch.h>

#include "error_of.h"
#include "plain_program.h"
#include "pt2_archive.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/npy.h"

namespace ulp::test {

namespace {

using exchange::import_pt2;
using Module = std::shared_ptr<graph::GraphModule>;
constexpr uint64_t kSeed = 3;  // of make_pt2.py

at::Tensor loss_of(const std::vector<at::Tensor>& results) {
  at::Tensor loss = results.at(0).square().mean();
  for (size_t i = 1; i < results.size(); ++i) loss = loss + results[i].square().mean();
  return loss;
}

using Tensors = std::map<std::string, at::Tensor>;

/// Results y0.., gradients g.NAME and buffers b.NAME of a run, as make_pt2.py names them.
template <typename Forward>
Tensors traces_of(const Forward& forward, const at::Tensor& x, const Tensors& parameters,
                  const Tensors& buffers) {
  torch::manual_seed(kSeed);
  const std::vector<at::Tensor> results = forward(std::vector<at::Tensor>{x});
  loss_of(results).backward();
  Tensors traces;
  for (size_t i = 0; i < results.size(); ++i) traces["y" + std::to_string(i)] = results[i].detach();
  for (const auto& [name, parameter] : parameters) traces["g." + name] = parameter.grad();
  for (const auto& [name, buffer] : buffers) traces["b." + name] = buffer;
  return traces;
}

template <typename Dict>
Tensors tensors_of(const Dict& named) {
  Tensors tensors;
  for (const auto& one : named) tensors[one.key()] = one.value();
  return tensors;
}

/// The largest magnitude among the traces of one kind, which their names begin with.
double largest_of(const Tensors& traces, char kind) {
  double largest = 0;
  for (const auto& [name, trace] : traces) {
    if (name.starts_with(kind)) largest = std::max(largest, trace.abs().max().item<double>());
  }
  return largest;
}

/// One run of a network of tests/golden at a batch.
void expect_that_of_pytorch(const std::string& network, int64_t batch) {
  SCOPED_TRACE(network + " at batch " + std::to_string(batch));
  const Tensors recorded = io::load_npz(golden_pt2(network + "." + std::to_string(batch) + ".npz"));
  const at::Tensor& x = recorded.at("x0");
  const Module module = import_pt2(golden_pt2(network + ".pt2"));
  const PlainProgram plain(golden_pt2(network + ".pt2"));
  const Tensors own = traces_of([&](const auto& inputs) { return module->forward_all(inputs); }, x,
                                tensors_of(module->named_parameters()), tensors_of(module->named_buffers()));
  const Tensors called = traces_of([&](const auto& inputs) { return plain.forward(inputs); }, x,
                                   plain.parameters, plain.buffers);
  EXPECT_EQ(called.size() + 1, recorded.size()) << "with the input";
  // Forward and backward are a chain of twice as many sums as there are calls, none of more terms than the
  // input has numbers. Gradients that cancel, as of a bias before a batch norm, are the rounding of others.
  const double roundings = 2 * static_cast<double>(plain.calls()) * static_cast<double>(x.numel());
  for (const auto& [name, expected] : called) {
    if (!own.contains(name)) {
      // The count of batches, which only training reads.
      EXPECT_TRUE(name.ends_with("num_batches_tracked") && !module->is_training()) << name;
      continue;
    }
    EXPECT_TRUE(torch::equal(own.at(name), expected)) << name;
    const at::Tensor& theirs = recorded.at(name);
    ASSERT_EQ(expected.sizes(), theirs.sizes()) << name;
    EXPECT_EQ(expected.scalar_type(), theirs.scalar_type()) << name;
    EXPECT_LE((expected - theirs).abs().max().item<double>(),
              roundings * 0x1p-24 * largest_of(recorded, name[0]))
        << name;
  }
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
    for (const int64_t batch : {1, 7, 64}) expect_that_of_pytorch(name, batch);
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

// The program was exported for 2 to 12: a branch of the model that others take is not in it.
TEST_F(ImportPt2, SizesBeyondThoseOfTheExportAreRefused) {
  const auto asked = [](exchange::SizeRange range) {
    return import_pt2(golden_pt2("texts.pt2"), {.sizes = {{"ids.1", range}}});
  };
  const auto refusal = [&](exchange::SizeRange range) { return error_of([&] { asked(range); }); };
  EXPECT_SAYS(refusal({.min = 1, .max = 13}), "'ids.1' of at most 12, as it was exported, got 13");
  EXPECT_SAYS(refusal({.min = 13, .max = 0}), "'ids.1' of at most 12, as it was exported, got 13");
  EXPECT_SAYS(refusal({.min = 1, .max = 0}), "'ids.1' of at least 2, as it was exported, got 1 at most");
  EXPECT_SAYS(refusal({.min = 9, .max = 6}), "whose smallest is below the largest, got 9 and 6");
  const Module all = asked({.min = 2, .max = 12});
  EXPECT_EQ(std::as_const(*all).graph().free[0].max, 12);
  const Module upper = asked({.min = 10, .max = 12});
  EXPECT_EQ(std::as_const(*upper).graph().free[0].min, 10);
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
