// Editing, verification and printing of graphs made by hand.
#include <sstream>

#include "same.h"
#include "ulp/graph/passes/pass.h"

namespace {

using namespace ulp;
using namespace ulp::graph;
using namespace ulp::test;

/// conv -> bn -> relu, as a capture would give it.
std::shared_ptr<Graph> sample() {
  auto graph = std::make_shared<Graph>();
  at::Tensor one = torch::ones({2});
  graph->set_attribute("conv.weight", {Attribute::Kind::parameter, torch::ones({2, 3, 1, 1})});
  for (const char* name : {"bn.weight", "bn.bias"})
    graph->set_attribute(name, {Attribute::Kind::parameter, one.clone()});
  for (const char* name : {"bn.running_mean", "bn.running_var"})
    graph->set_attribute(name, {Attribute::Kind::buffer, one.clone()});
  Value* input = graph->add_input("input");
  input->meta = TensorMeta{at::kFloat, {{1, 1, 0}, {0, 1, 3}, {0, 1, 4}, {0, 1, 4}}, false};
  Node* conv = graph->call("aten::conv2d", {input, graph->attribute("conv.weight")});
  conv->scope = "conv";
  Node* norm = graph->call(
      "aten::batch_norm",
      {conv->output(), graph->attribute("bn.weight"), graph->attribute("bn.bias"),
       graph->attribute("bn.running_mean"), graph->attribute("bn.running_var"), Argument::training_flag(),
       Argument(c10::IValue(0.1)), Argument(c10::IValue(1e-5)), Argument(c10::IValue(true))});
  norm->scope = "bn";
  Node* relu = graph->call("aten::relu", {norm->output()});
  graph->set_output(relu->output());
  graph->verify();
  return graph;
}

Node* find(const Graph& graph, std::string_view op) {
  for (const auto& node : graph.nodes()) {
    if (node->is(op)) return node.get();
  }
  return nullptr;
}

std::string listing(const Graph& graph) {
  std::ostringstream out;
  out << graph;
  return out.str();
}

TEST(Graph, ListingBeforeAndAfterAPass) {
  auto graph = sample();
  EXPECT_EQ(listing(*graph), R"(%input : f32[N, 3, 4, 4] = input
%conv.weight : f32[2, 3, 1, 1] = parameter
%bn.weight : f32[2] = parameter
%bn.bias : f32[2] = parameter
%bn.running_mean : f32[2] = buffer
%bn.running_var : f32[2] = buffer
%conv2d = aten::conv2d(%input, %conv.weight)  # conv
%batch_norm = aten::batch_norm(%conv2d, %bn.weight, %bn.bias, %bn.running_mean, %bn.running_var, training=training, momentum=0.1, eps=1e-05, cudnn_enabled=true)  # bn
%relu = aten::relu(%batch_norm)
return %relu
)");
  fold_batch_norm(*graph);
  graph->verify();
  EXPECT_EQ(listing(*graph), R"(%input : f32[N, 3, 4, 4] = input
%conv.weight : f32[2, 3, 1, 1] = parameter
%conv.bias : f32[2] = parameter
%conv2d = aten::conv2d(%input, %conv.weight, %conv.bias)  # conv
%relu = aten::relu(%conv2d)
return %relu
)");
}

TEST(Graph, Drawing) {
  EXPECT_EQ(to_dot(*sample()), R"(digraph {
  node [shape=box, fontname="monospace"];
  "input" [label="input", style=rounded];
  "conv2d" [label="conv2d\naten::conv2d\nconv"];
  "input" -> "conv2d" [label="f32[N, 3, 4, 4]"];
  "batch_norm" [label="batch_norm\naten::batch_norm\nbn"];
  "conv2d" -> "batch_norm";
  "relu" [label="relu\naten::relu"];
  "batch_norm" -> "relu";
  "output" [label="output", style=rounded];
  "relu" -> "output";
}
)");
}

TEST(Graph, CallsAreCheckedAgainstTheirSchema) {
  Graph graph;
  Value* x = graph.add_input("x");
  EXPECT_ERROR(graph.call("aten::no_such_op", {x}), "aten::no_such_op");
  EXPECT_ERROR(graph.call("aten::relu", {x, x}), "at most 1");
  EXPECT_ERROR(graph.call("aten::conv2d", {x}), "'weight'");
  Node* conv = graph.call("aten::conv2d", {x, x});
  EXPECT_EQ(conv->args.size(), 7);
  EXPECT_EQ(conv->arg("groups").literal.toInt(), 1);
  EXPECT_ERROR(conv->arg("depth"), "'depth'");
  EXPECT_EQ(graph.call("aten::relu", {x})->name(), "relu");
  EXPECT_EQ(graph.call("aten::relu", {x})->name(), "relu_1");
}

TEST(Graph, Editing) {
  auto graph = sample();
  Node *relu = find(*graph, "aten::relu"), *norm = find(*graph, "aten::batch_norm");
  EXPECT_ERROR(graph->erase(norm), "read by 'relu'");
  Node* tanh = graph->call("aten::tanh", {norm->output()}, relu);
  graph->replace_uses(norm->output(), tanh->output(), tanh);
  EXPECT_EQ(relu->args[0].value, tanh->output());
  EXPECT_EQ(graph->users(norm->output()), std::vector<Node*>{tanh});
  graph->retarget(relu, "aten::sigmoid", {norm->output()});
  EXPECT_EQ(graph->remove_dead(), 1);  // tanh
  graph->verify();
  EXPECT_EQ(relu->target(), "aten::sigmoid");
  EXPECT_ERROR(graph->retarget(relu, "aten::max.dim", {norm->output(), Argument(c10::IValue(int64_t{0}))}),
               "2 outputs");
}

TEST(Graph, DeadNodesWithEffectsStay) {
  auto graph = sample();
  graph->set_attribute("count", {Attribute::Kind::buffer, torch::zeros({})});
  graph->call("aten::add_.Scalar", {graph->attribute("count"), Argument(c10::IValue(1))});
  graph->set_attribute("unused", {Attribute::Kind::constant, torch::zeros({})});
  EXPECT_EQ(graph->remove_dead(), 0);
  EXPECT_EQ(graph->remove_dead(true), 1);
  EXPECT_EQ(graph->find_attribute("unused"), nullptr);
  EXPECT_NE(graph->find_attribute("count"), nullptr);
}

TEST(Graph, CloneIsIndependentButSharesTensors) {
  auto graph = sample();
  auto copy = graph->clone();
  copy->verify();
  std::string before = listing(*graph);
  fold_batch_norm(*copy);
  EXPECT_EQ(listing(*graph), before);
  EXPECT_NE(listing(*copy), before);
  auto fresh = graph->clone();
  EXPECT_TRUE(fresh->find_attribute("bn.bias")->tensor.is_same(graph->find_attribute("bn.bias")->tensor));
}

TEST(Verify, NamesTheNode) {
  auto late = sample();
  Node* relu = find(*late, "aten::relu");
  late->move_before(relu, find(*late, "aten::conv2d"));
  EXPECT_ERROR(late->verify(), "'relu' to read values defined before it, got 'batch_norm'");
  auto fewer = sample();
  find(*fewer, "aten::conv2d")->args.pop_back();
  EXPECT_ERROR(fewer->verify(), "expected 7 arguments of aten::conv2d 'conv2d'");
  auto wrong = sample();
  find(*wrong, "aten::relu")->args[0] = Argument(c10::IValue(1.0));
  EXPECT_ERROR(wrong->verify(), "expected a tensor as 'self' of aten::relu 'relu'");
  std::shared_ptr<Graph> open = std::make_shared<Graph>();
  open->add_input("x");
  EXPECT_ERROR(open->verify(), "output node");
}

TEST(SizeExpr, PrintsAndRuns) {
  auto graph = std::make_shared<Graph>();
  Value* x = graph->add_input("x");
  Argument three(c10::IValue(int64_t{3}));
  Node* view = graph->call("aten::view", {x, Argument::list({SizeExpr{2, 1, 0}, three})});
  Node* zeros = graph->call("aten::zeros", {Argument::list({SizeExpr{2, 1, -1}, three})});
  graph->set_output(Argument::tuple({view->output(), zeros->output()}));
  EXPECT_NE(listing(*graph).find("aten::view(%x, [2N, 3])"), std::string::npos) << listing(*graph);
  EXPECT_NE(listing(*graph).find("aten::zeros([2N-1, 3])"), std::string::npos) << listing(*graph);
  GraphModule module(graph);
  Tensors results = module.forward_all({torch::zeros({4, 6})});
  EXPECT_EQ(results[0].sizes(), (std::vector<int64_t>{8, 3}));
  EXPECT_EQ(results[1].sizes(), (std::vector<int64_t>{7, 3}));
}

}  // namespace
