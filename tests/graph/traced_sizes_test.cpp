// Traced TorchScript computes sizes with tensors, as torch.jit.trace writes `x.view(n * 2, 3)`.
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/irparser.h>

#include "same.h"

namespace {

using namespace ulp;
using namespace ulp::test;

torch::jit::Module module_of(const std::string& text) {
  torch::jit::Module model("sizes");
  const auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(text, graph.get());
  graph->inputs()[0]->setType(model.type());
  torch::jit::Function* forward = model._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*model.type()->name(), "forward"), graph);
  model.type()->addMethod(forward);
  return model;
}

TEST(TracedSizes, AreNumbersThatFollowTheBatch) {
  torch::jit::Module model = module_of(R"IR(
graph(%self, %x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %n : int = aten::size(%x, %zero)
  %n.tensor : Tensor = prim::NumToTensor(%n)
  %c : int = aten::size(%x, %one)
  %c.tensor : Tensor = prim::NumToTensor(%c)
  %twice : Tensor = aten::mul(%n.tensor, %two)
  %half : Tensor = aten::floor_divide(%c.tensor, %two)
  %rows : int = aten::Int(%twice)
  %columns : int = aten::Int(%half)
  %sizes : int[] = prim::ListConstruct(%rows, %columns)
  %y : Tensor = aten::view(%x, %sizes)
  %z : Tensor = aten::relu(%y)
  return (%z)
)IR");
  const auto module = ulp::capture(model, {torch::randn({2, 6})});
  EXPECT_EQ(count(module->graph(), "aten::mul"), 0) << module->graph();
  EXPECT_EQ(count(module->graph(), "aten::floor_divide"), 0) << module->graph();
  for (const int64_t batch : {1, 2, 7}) {
    const at::Tensor x = torch::randn({batch, 6});
    EXPECT_TRUE(torch::equal(module->forward(x), x.view({batch * 2, 3}).relu()));
  }
}

TEST(TracedSizes, OfDataAreRefused) {
  torch::jit::Module model = module_of(R"IR(
graph(%self, %x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %total : Tensor = aten::sum(%x, %none)
  %n : int = aten::Int(%total)
  %y : Tensor = aten::add(%x, %n, %n)
  return (%y)
)IR");
  EXPECT_ERROR(ulp::capture(model, {torch::randn({2, 6})}), "reads a number from a tensor");
}

}  // namespace
