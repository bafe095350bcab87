// Captured models as archives of torch.export: our own reader gives the same bits, names and free sizes, and
// the description is the one that PyTorch 2.13 reads (bench/peers/pt2_check.py asks PyTorch itself).
#include "ulp/exchange/export_pt2.h"

#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "captured_function.h"
#include "error_of.h"
#include "file_bytes.h"
#include "pt2_archive.h"
#include "temporary_folder.h"
#include "ulp/exchange/import_pt2.h"
#include "ulp/models/registry.h"
#include "ulp/quant/quantize.h"

namespace ulp::test {

namespace {

using exchange::export_pt2;
using exchange::import_pt2;
using Module = std::shared_ptr<graph::GraphModule>;
using Json = nlohmann::json;

Module read_back(const graph::GraphModule& module) {
  return import_pt2(export_pt2(module), "written.pt2");
}

using Inputs = std::vector<at::Tensor>;

/// What is read back gives the same bits for each set of inputs.
Module expect_same(graph::GraphModule& module, const std::vector<Inputs>& runs) {
  const torch::NoGradGuard no_grad;
  const Module again = read_back(module);
  for (const Inputs& inputs : runs) {
    const std::vector<at::Tensor> ours = module.forward_all(inputs), theirs = again->forward_all(inputs);
    EXPECT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
      EXPECT_EQ(ours[i].scalar_type(), theirs[i].scalar_type());
      EXPECT_TRUE(at::equal(ours[i].nan_to_num(), theirs[i].nan_to_num())) << "result " << i;
      EXPECT_TRUE(at::equal(ours[i].isnan(), theirs[i].isnan())) << "result " << i;
    }
  }
  return again;
}

/// The entries of an archive, and its program.
struct Written {
  std::map<std::string, std::string> entries;
  Json program;
  Json config(const std::string& folder) const {
    return Json::parse(entries.at("data/" + folder + "/model_" + folder + "_config.json")).at("config");
  }
  const Json& graph() const { return program.at("graph_module").at("graph"); }
  std::vector<std::string> targets() const {
    std::vector<std::string> targets;
    for (const Json& node : graph().at("nodes")) targets.push_back(node.at("target"));
    return targets;
  }
};

Written written(const graph::GraphModule& module, const exchange::Pt2Options& options = {}) {
  const TemporaryFolder folder;
  export_pt2(module, folder / "m.pt2", options);
  Written all{.entries = pt2_entries(folder / "m.pt2"), .program = {}};
  all.program = Json::parse(all.entries.at("models/model.json"));
  return all;
}

struct ImagesImpl : torch::nn::Module {
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(2, 4, 3).padding(1)};
  torch::nn::BatchNorm2d norm{4};
  torch::nn::Linear head{4 * 16, 3};
  at::Tensor shift;
  ImagesImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("head", head);
    shift = register_buffer("shift", torch::full({3}, 0.5));
  }
  std::map<std::string, at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor features = torch::dropout(torch::relu(norm(conv(x))), 0.5, is_training());
    return {{"features", features}, {"logits", head(features.flatten(1)) + shift}};
  }
};
TORCH_MODULE(Images);

Module images() {
  torch::manual_seed(1);
  Images model;
  model->forward(torch::randn({8, 2, 4, 4}));
  model->eval();
  return capture(model, {torch::randn({2, 2, 4, 4})});
}

struct PairsImpl : torch::nn::Module {
  torch::nn::Embedding words{16, 6};
  torch::nn::Linear key{4, 6};
  PairsImpl() {
    register_module("words", words);
    register_module("key", key);
    tied = register_parameter("tied", words->weight);
  }
  std::tuple<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& ids, const at::Tensor& frames) {
    const at::Tensor x = words(ids), k = key(frames);
    const at::Tensor read = torch::scaled_dot_product_attention(x, k, k);
    const auto halves = torch::chunk(frames, 2, 1);
    return {torch::nn::functional::linear(read, tied).view({ids.size(0) * ids.size(1), 16}),
            {halves[0] - halves[1], read.mean(1)}};
  }
  at::Tensor tied;
};
TORCH_MODULE(Pairs);

/// Texts of free length and frames whose number is a multiple of 4.
Module pairs(const std::vector<std::string>& names = {"ids", "frames"}) {
  torch::manual_seed(2);
  Pairs model;
  model->eval();
  graph::CaptureOptions options;
  options.free = {{0, 1, "words", 9, 2}, {1, 1, "frames", 24, 4, 4}};
  options.input_names = names;
  return capture(model, {torch::ones({2, 9}, torch::kLong), torch::randn({2, 24, 4})}, options);
}

/// A graph of one call of an operator on an input, whose other tensors are stored.
class OneCall {
 public:
  OneCall(at::ScalarType type, const std::vector<int64_t>& sizes) {
    x = graph->add_input("x");
    x->meta = graph::TensorMeta{.dtype = type, .sizes = {{1, 1, 0}}};
    for (size_t i = 1; i < sizes.size(); ++i) x->meta->sizes.push_back({0, 1, sizes[i]});
    graph->batch_dims = {0};
  }
  graph::Value* store(const std::string& name, const at::Tensor& tensor) {
    graph->set_attribute(name, {graph::Attribute::Kind::buffer, tensor});
    return graph->attribute(name);
  }
  Module module(const std::string& target, std::vector<graph::Argument> args, const at::Tensor& example) {
    graph::Node* node = graph->call(target, std::move(args));
    graph->set_output(node->output());
    auto made = std::make_shared<graph::GraphModule>(graph);
    made->eval();
    const at::Tensor y = made->forward(example);
    node->output()->meta = graph::TensorMeta{.dtype = y.scalar_type(), .sizes = {{1, 1, 0}}};
    for (int64_t d = 1; d < y.dim(); ++d) node->output()->meta->sizes.push_back({0, 1, y.size(d)});
    return made;
  }

  std::shared_ptr<graph::Graph> graph = std::make_shared<graph::Graph>();
  graph::Value* x = nullptr;
};

}  // namespace

TEST(ExportPt2, ComesBackWithNamesAndBits) {
  const Module module = images();
  module->eval();
  const Module again = expect_same(*module, {{torch::randn({1, 2, 4, 4})}, {torch::randn({7, 2, 4, 4})}});
  for (const auto& parameter : module->named_parameters())
    EXPECT_TRUE(at::equal(again->named_parameters()[parameter.key()], parameter.value())) << parameter.key();
  for (const char* name : {"norm.running_mean", "norm.running_var", "shift"})
    EXPECT_TRUE(at::equal(again->named_buffers()[name], module->named_buffers()[name])) << name;
  EXPECT_FALSE(again->is_training());
  EXPECT_TRUE(
      (again->call<std::map<std::string, at::Tensor>>(torch::randn({2, 2, 4, 4})).contains("logits")));
}

TEST(ExportPt2, DescribesTheProgramAsPyTorchReadsIt) {
  const Written file = written(*images(), {.metadata = {{"note", "of ours"}}});
  EXPECT_EQ(file.entries.at("archive_format"), "pt2");
  EXPECT_EQ(file.entries.at("archive_version"), "0");
  EXPECT_EQ(file.entries.at("extra/note"), "of ours");
  EXPECT_EQ(file.program["schema_version"], Json({{"major", 8}, {"minor", 20}}));
  EXPECT_EQ(file.program["range_constraints"]["s0"], Json({{"min_val", 1}, {"max_val", nullptr}}));
  // A batch norm is what it is in eval mode, and a dropout is nothing.
  const std::vector<std::string> targets = file.targets();
  EXPECT_EQ(targets,
            (std::vector<std::string>{"torch.ops.aten.conv2d.default", "torch.ops.aten.batch_norm.default",
                                      "torch.ops.aten.relu.default", "torch.ops.aten.flatten.using_ints",
                                      "torch.ops.aten.t.default", "torch.ops.aten.addmm.default",
                                      "torch.ops.aten.add.Tensor"}));
  const Json& norm = file.graph()["nodes"][1]["inputs"];
  EXPECT_EQ(norm[5], Json({{"name", "training"}, {"arg", {{"as_bool", false}}}, {"kind", 1}}));
  // Every buffer is there, read or not, in the model's order, and parameters come first.
  const Json& inputs = file.program["graph_module"]["signature"]["input_specs"];
  EXPECT_EQ(inputs[0]["parameter"]["parameter_name"], "conv.weight");
  EXPECT_EQ(inputs.back()["user_input"]["arg"]["as_tensor"]["name"], "input");
  EXPECT_TRUE(file.config("weights").contains("norm.num_batches_tracked"));
  const Json weight = file.config("weights")["head.weight"];
  EXPECT_EQ(weight["tensor_meta"]["dtype"], 7);
  EXPECT_EQ(weight["is_param"], true);
  EXPECT_EQ(file.entries.at("data/weights/" + weight["path_name"].get<std::string>()).size(),
            3 * 64 * sizeof(float));
  const std::string tree = file.program["graph_module"]["module_call_graph"][0]["signature"]["out_spec"];
  EXPECT_EQ(Json::parse(tree)[1]["context"], R"(["features","logits"])");
}

struct WithAux {
  at::Tensor out, aux, last;
  ULP_TENSOR_FIELDS(out, aux, last)
};

/// PyTorch refuses a result whose description has other leaves than the program.
TEST(ExportPt2, FieldsOfTrainModeAreLeftOut) {
  struct Net : torch::nn::Module {
    torch::nn::Linear head = register_module("head", torch::nn::Linear(4, 3));
    WithAux forward(const at::Tensor& x) {
      WithAux result{.out = head(x), .aux = {}, .last = x};
      if (is_training()) result.aux = head(x * 2);
      return result;
    }
  } net;
  const Module module = ulp::capture(net, {torch::randn({2, 4})});
  module->eval();
  const Written file = written(*module);
  const Json signature = file.program["graph_module"]["module_call_graph"][0]["signature"];
  const Json tree = Json::parse(signature["out_spec"].get<std::string>())[1];
  EXPECT_EQ(tree["context"], R"(["out","last"])");
  EXPECT_EQ(tree["children_spec"].size(), 2U);
  expect_same(*module, {{torch::randn({3, 4})}});
}

TEST(ExportPt2, FreeSizesKeepRangesAndMultiples) {
  const Module module = pairs();
  module->eval();
  std::vector<Inputs> runs;
  for (const auto& [batch, words, frames] : {std::tuple{1, 9, 24}, {3, 2, 4}, {7, 5, 12}})
    runs.push_back({torch::randint(0, 16, {batch, words}, torch::kLong), torch::randn({batch, frames, 4})});
  const Module again = expect_same(*module, runs);
  const Written file = written(*module);
  const Json& ranges = file.program["range_constraints"];
  EXPECT_EQ(ranges["s1"], Json({{"min_val", 2}, {"max_val", 9}}));
  EXPECT_EQ(ranges["s2"], Json({{"min_val", 1}, {"max_val", 6}}));
  EXPECT_EQ(ranges["4*s2"], Json({{"min_val", 4}, {"max_val", 24}}));
  EXPECT_EQ(file.program["guards_code"], Json::array({"L['frames'].size()[1] % 4 == 0"}));
  const Json& frames = file.graph()["tensor_values"]["frames"];
  EXPECT_EQ(frames["sizes"][1]["as_expr"]["expr_str"],
            "Mul(Integer(4), Symbol('s2', positive=True, integer=True))");
  EXPECT_EQ(frames["sizes"][1]["as_expr"]["hint"], Json({{"as_int", 24}}));
  EXPECT_EQ(frames["strides"][0]["as_expr"]["expr_str"],
            "Mul(Integer(4), Mul(Integer(4), Symbol('s2', positive=True, integer=True)))");
  const auto& free = std::as_const(*again).graph().free;
  ASSERT_EQ(free.size(), 2U);
  EXPECT_EQ(free[0].min, 2);
  EXPECT_EQ(free[0].max, 9);
  EXPECT_EQ(free[1].multiple, 4);
}

TEST(ExportPt2, TheLengthOfARecurrentLayerHasNoSample) {
  struct Recurrent : torch::nn::Module {
    torch::nn::LSTM lstm{torch::nn::LSTMOptions(3, 5).batch_first(true).bidirectional(true)};
    torch::nn::GRU gru{torch::nn::GRUOptions(10, 4).batch_first(true)};
    Recurrent() {
      register_module("lstm", lstm);
      register_module("gru", gru);
    }
    std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) { return gru(std::get<0>(lstm(x))); }
  };
  torch::manual_seed(3);
  auto model = std::make_shared<Recurrent>();
  model->eval();
  graph::CaptureOptions options;
  options.free = {{0, 1, "time", 8}};
  const Module module = capture(model, {torch::randn({2, 8, 3})}, options);
  module->eval();
  expect_same(*module, {{torch::randn({3, 5, 3})}});
  const Json size = written(*module).graph()["tensor_values"]["input"]["sizes"][1]["as_expr"];
  EXPECT_TRUE(size["hint"].is_null()) << size;
}

TEST(ExportPt2, TiedTensorsAndViewsShareTheirMemory) {
  const Module two = pairs();
  const Written file = written(*two);
  const Json weights = file.config("weights");
  EXPECT_EQ(weights["tied"]["path_name"], weights["words.weight"]["path_name"]);
  const Module again = read_back(*two);
  EXPECT_TRUE(again->named_parameters()["tied"].is_same(again->named_parameters()["words.weight"]));
  // Two views of one memory; a slice of another one alone takes its own numbers.
  OneCall call(at::kFloat, {2, 4});
  const at::Tensor memory = torch::arange(12.0).view({3, 4}), other = torch::arange(100.0);
  graph::Value *row = call.store("row", memory[1]), *table = call.store("table", memory.t());
  graph::Value* part = call.store("part", other.slice(0, 3, 7));
  graph::Value* sum = call.graph->call("aten::add.Tensor", {row, part})->output();
  sum->meta = graph::TensorMeta{.dtype = at::kFloat, .sizes = {{0, 1, 4}}};
  graph::Value* bias = call.graph->call("aten::add.Tensor", {call.x, sum})->output();
  bias->meta = call.x->meta;
  const Module module = call.module("aten::matmul", {bias, table}, torch::ones({2, 4}));
  expect_same(*module, {{torch::randn({2, 4})}});
  const Written views = written(*module);
  const Json config = views.config("weights");
  EXPECT_EQ(config["row"]["path_name"], config["table"]["path_name"]);
  EXPECT_EQ(config["row"]["tensor_meta"]["storage_offset"], Json({{"as_int", 4}}));
  EXPECT_EQ(views.entries.at("data/weights/" + config["part"]["path_name"].get<std::string>()).size(),
            4 * sizeof(float));
}

TEST(ExportPt2, EveryEntryBeginsAtAMultipleOf64AndEqualModelsGiveEqualBytes) {
  const std::string bytes = export_pt2(*images());
  EXPECT_EQ(bytes, export_pt2(*images()));
  const TemporaryFolder folder;
  export_pt2(*images(), folder / "m.pt2");
  EXPECT_EQ(file_bytes(folder / "m.pt2"), bytes);
  for (const auto& [name, content] : pt2_entries(folder / "m.pt2")) {
    const size_t header = bytes.find("model/" + name), fields = bytes.find("FB", header);
    const auto fill = static_cast<size_t>(static_cast<uint8_t>(bytes.at(fields + 2)));
    const size_t start = fields + 4 + fill;
    EXPECT_EQ(start % 64, 0U) << name;
    EXPECT_EQ(bytes.substr(start, content.size()), content) << name;
  }
}

TEST(ExportPt2, NamesThatPythonHasForOtherThingsAreLeftToIt) {
  const Written file = written(*pairs({"lambda", "self"}));
  const Json names = file.program["graph_module"]["module_call_graph"][0]["signature"]["forward_arg_names"];
  EXPECT_EQ(names, Json::array({"lambda_", "self_"}));
  const auto module = captured_function([](const at::Tensor& x) { return std::get<0>(x.max(1)) + x.amax(1); },
                                        torch::randn({2, 3}));
  const Written other = written(*module);
  for (const Json& node : other.graph()["nodes"]) EXPECT_NE(node["name"], "max");
}

TEST(ExportPt2, ArgumentsOfEveryKind) {
  const auto body = [](const at::Tensor& x) {
    at::Tensor y = at::gelu(x, "tanh") * INFINITY;
    y = y.masked_fill(x.lt(0), -INFINITY).clamp(c10::nullopt, 3) + at::arange(0, 6, 2, x.options());
    y = at::upsample_nearest2d(y.view({x.size(0), 1, 1, 3}), c10::nullopt, at::ArrayRef<double>({2.0, 1.5}));
    y = y.contiguous(at::MemoryFormat::ChannelsLast).to(at::kDouble).index({torch::indexing::Slice(), 0});
    const auto parts = at::split_with_sizes(y.to(at::kHalf), {1, 1}, 1);
    return at::stack({parts[0], parts[1]}, 1).sum({1, 2}, true) / x.size(0);
  };
  const auto module = captured_function(body, torch::randn({2, 3}));
  expect_same(*module, {{torch::randn({5, 3})}});
}

TEST(ExportPt2, InPlaceCallsKeepTheirTypeAndPartsWithoutGradientsStaySo) {
  auto net = std::make_shared<FunctionNet>();
  const at::Tensor weight = net->register_parameter("weight", torch::full({3}, 0.3));
  const at::Tensor wide = net->register_buffer("wide", torch::full({3}, 1.0 / 3, torch::kDouble));
  net->body = [=](const at::Tensor& x) {
    at::Tensor y = x * weight;
    y.mul_(wide);
    at::Tensor low = y.clone();
    low.lt_(0.1);
    y = y + (1 - low);
    const torch::NoGradGuard no_grad;
    at::Tensor z = weight.exp() * x;
    z.add_(wide);
    return y + z;
  };
  const Module module = captured_net(net, torch::randn({2, 3}));
  expect_same(*module, {{torch::randn({4, 3})}});
  EXPECT_EQ(read_back(*module)->forward(torch::ones({2, 3})).scalar_type(), at::kFloat);
  const std::vector<std::string> targets = written(*module).targets();
  EXPECT_TRUE(std::ranges::find(targets, "torch.ops.aten.to.dtype") != targets.end());
}

class ExportPt2Codes : public testing::TestWithParam<const char*> {};

TEST_P(ExportPt2Codes, StaticInt8IsPlainCalls) {
  torch::manual_seed(1);
  const auto model = models::make_model("lenet5", {.in_channels = 1, .image_size = 28});
  model->eval();
  const at::Tensor images = torch::randn({4, 1, 28, 28});
  const bool lite = std::string(GetParam()) == "tflite_int8";
  const auto prepared = quant::prepare(capture(*model, {images}),
                                       lite ? quant::Recipe::tflite_int8() : quant::Recipe::onnx_qdq());
  prepared->forward(images);
  const Module module = quant::convert(prepared);
  module->eval();
  at::Tensor odd = torch::full({1, 1, 28, 28}, NAN);
  odd[0][0][3].fill_(INFINITY);
  odd[0][0][4].fill_(-1e30);
  expect_same(*module, {{torch::randn({3, 1, 28, 28}) * 3}, {odd}});
  const Written file = written(*module);
  for (const std::string& target : file.targets())
    EXPECT_TRUE(target.starts_with("torch.ops.aten.")) << target;
  EXPECT_EQ(file.config("weights")["conv1.weight.int8"]["tensor_meta"]["dtype"], 2);
}

INSTANTIATE_TEST_SUITE_P(Profiles, ExportPt2Codes, testing::Values("onnx_qdq", "tflite_int8"));

TEST(ExportPt2, QuantizeAndDequantizeAlongAnAxis) {
  const at::Tensor scale = torch::tensor({0.1F, 0.25F, 3.0F}),
                   zero = torch::tensor({3, 128, 255}, torch::kInt);
  const at::Tensor x = torch::cat({torch::randn({4, 3, 50}) * 40, torch::full({4, 3, 1}, NAN),
                                   torch::arange(-30.0, 30.0).mul(0.125).view({1, 1, 60}).expand({4, 3, 60})},
                                  2);
  OneCall call(at::kFloat, x.sizes().vec());
  const Module module = call.module(
      "ulp::quantize",
      {call.x, call.store("s", scale), call.store("z", zero), c10::IValue(int64_t{1}),
       c10::IValue(int64_t{0}), c10::IValue(int64_t{200}), c10::IValue(static_cast<int64_t>(at::kByte))},
      x);
  expect_same(*module, {{x}});
  OneCall back(at::kInt, {2, 3});
  const at::Tensor codes = torch::tensor({1 << 30, -7, 33, 5, 16777217, 0}, torch::kInt).view({2, 3});
  expect_same(
      *back.module("ulp::dequantize",
                   {back.x, back.store("s", scale), back.store("z", zero), c10::IValue(int64_t{1})}, codes),
      {{codes}});
}

TEST(ExportPt2, AveragesOfCodesAreTheEnginesInEveryForm) {
  struct Form {
    std::vector<int64_t> sizes, kernel, stride, padding;
    bool ceil_mode, count_include_pad;
  };
  const std::vector<Form> forms = {{{3, 4, 9, 7}, {}, {}, {}, false, true},
                                   {{3, 4, 9, 7}, {2, 2}, {2, 2}, {0, 0}, false, true},
                                   {{3, 4, 9, 7}, {3, 2}, {2, 2}, {1, 1}, false, true},
                                   {{3, 4, 9, 7}, {3, 2}, {2, 2}, {1, 1}, false, false},
                                   {{3, 4, 9, 8}, {3, 3}, {2, 2}, {1, 0}, true, true},
                                   {{3, 4, 9, 8}, {3, 3}, {2, 2}, {1, 1}, true, false},
                                   {{3, 4, 11}, {3}, {2}, {1}, true, true},
                                   {{3, 4, 11}, {}, {}, {}, false, true}};
  torch::manual_seed(4);
  const auto list = [](const std::vector<int64_t>& numbers) { return c10::IValue(numbers); };
  for (const Form& form : forms) {
    for (const char* rounding : {"half_even", "half_away"}) {
      for (const at::ScalarType type : {at::kChar, at::kByte}) {
        const bool away = rounding == std::string("half_away");
        if (away && type == at::kByte) continue;
        const int64_t low = type == at::kChar ? -128 : 0;
        const at::Tensor codes = torch::randint(low, low + 256, form.sizes).to(type);
        OneCall call(type, form.sizes);
        const at::Tensor scale = torch::tensor({0.031F}), zero = torch::tensor({low + 131}, torch::kInt);
        const at::Tensor other = away ? scale : torch::tensor({0.0173F});
        const Module module = call.module(
            "ulp::average_codes",
            {call.x, call.store("s", scale), call.store("z", zero), call.store("rs", other),
             call.store("rz", zero), list(form.kernel), list(form.stride), list(form.padding),
             c10::IValue(form.ceil_mode), c10::IValue(form.count_include_pad), c10::IValue(rounding)},
            codes);
        SCOPED_TRACE(std::string(rounding) + " kernel " + std::to_string(form.kernel.size()));
        expect_same(*module, {{codes}});
      }
    }
  }
}

TEST(ExportPt2, WeightsInCodesAndSigns) {
  torch::manual_seed(5);
  const auto linear_of = [](const std::string& op,
                            const std::function<std::vector<graph::Argument>(OneCall&)>& arguments) {
    OneCall call(at::kFloat, {2, 10});
    graph::Value* weight = call.graph->call(op, arguments(call))->output();
    weight->meta = graph::TensorMeta{.dtype = at::kFloat, .sizes = {{0, 1, 6}, {0, 1, 10}}};
    expect_same(*call.module("aten::linear", {call.x, weight, c10::IValue()}, torch::ones({2, 10})),
                {{torch::randn({2, 10})}});
  };
  const at::Tensor nibbles = torch::randint(0, 256, {6, 3, 2}).to(torch::kByte), scale = torch::rand({6, 3});
  const c10::IValue columns(int64_t{10});
  linear_of("ulp::dequantize_weight", [&](OneCall& call) -> std::vector<graph::Argument> {
    return {call.store("c", torch::randint(-128, 128, {6, 10}).to(torch::kChar)),
            call.store("s", torch::rand({6})), c10::IValue(), columns};
  });
  linear_of("ulp::dequantize_weight", [&](OneCall& call) -> std::vector<graph::Argument> {
    return {call.store("c", nibbles), call.store("s", scale), c10::IValue(), columns};
  });
  linear_of("ulp::dequantize_weight", [&](OneCall& call) -> std::vector<graph::Argument> {
    return {call.store("c", nibbles), call.store("s", scale),
            call.store("z", torch::randint(0, 16, {6, 3}).to(torch::kByte)), columns};
  });
  linear_of("ulp::dequantize_weight", [&](OneCall& call) -> std::vector<graph::Argument> {
    return {call.store("c", nibbles), call.store("s", scale), c10::IValue(), columns,
            call.store("m", torch::rand({6, 3}))};
  });
  const at::Tensor weight = torch::randn({6, 10});
  linear_of("ulp::binarize", [&](OneCall& call) -> std::vector<graph::Argument> {
    return {call.store("w", weight), c10::IValue("clipped")};
  });
  linear_of("ulp::ternarize", [&](OneCall& call) -> std::vector<graph::Argument> {
    return {call.store("w", weight), c10::IValue(0.7)};
  });
}

TEST(ExportPt2, ChannelsThatBecomePixels) {
  const at::Tensor x = torch::randn({3, 12, 4, 5});
  for (const auto& [h, w, crop_h, crop_w] : {std::tuple{2, 3, 1, 2}, {3, 1, 0, 0}}) {
    OneCall call(at::kFloat, x.sizes().vec());
    const auto number = [](int64_t n) { return c10::IValue(n); };
    const Module module =
        call.module("ulp::depth_to_space", {call.x, number(h), number(w), number(crop_h), number(crop_w)}, x);
    expect_same(*module, {{x}, {x.slice(0, 0, 1)}});
  }
}

TEST(ExportPt2, WhatHasNoFormIsRefusedByNameAndNothingIsWritten) {
  torch::manual_seed(1);
  const auto model = models::make_model("lenet5", {.in_channels = 1, .image_size = 28});
  const auto prepared =
      quant::prepare(capture(*model, {torch::randn({4, 1, 28, 28})}), quant::Recipe::onnx_qdq());
  const TemporaryFolder folder;
  std::ofstream(folder / "m.pt2") << "as it was";
  EXPECT_ERROR(export_pt2(*prepared, folder / "m.pt2"), "without observers");
  EXPECT_EQ(file_bytes(folder / "m.pt2"), "as it was");
  // A call of ours that is not spelled out, by its node; one that reads it is none of the reasons.
  OneCall call(at::kFloat, {2, 4});
  graph::Value* scale = call.store("s", torch::tensor({0.1F}));
  graph::Value* zero = call.store("z", torch::tensor({0}, torch::kInt));
  graph::Value* fake = call.graph
                           ->call("ulp::fake_quantize", {call.x, scale, zero, c10::IValue(int64_t{-1}),
                                                         c10::IValue(int64_t{0}), c10::IValue(int64_t{255})})
                           ->output();
  fake->meta = call.x->meta;
  const std::string error = error_of([&] {
    export_pt2(*call.module("aten::relu", {fake}, torch::ones({2, 4})), folder / "n.pt2");
  });
  EXPECT_SAYS(error, "[exchange.export_pt2]");
  EXPECT_SAYS(error, "ulp::fake_quantize");
  EXPECT_FALSE(contains(error, "aten::relu")) << error;
  EXPECT_FALSE(std::filesystem::exists(folder / "n.pt2"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
  OneCall other(at::kFloat, {2, 4});
  other.store("waves", torch::zeros({2}, torch::kFloat8_e4m3fn));
  EXPECT_ERROR(export_pt2(*other.module("aten::relu", {other.x}, torch::ones({2, 4}))), "'waves'");
  EXPECT_ERROR(export_pt2(*images(), folder / "none" / "m.pt2"), "none");
}

TEST(ExportPt2, CallsThatDependOnMoreThanAnArchiveSaysAreRefused) {
  EXPECT_ERROR(export_pt2(*captured_function([](const at::Tensor& x) { return x.slice(0, 0, 3) * 2; },
                                             torch::ones({5, 4}))),
               "by no polynomial");
  OneCall own(at::kFloat, {2, 4});
  const Module cast = own.module("aten::relu", {own.x}, torch::ones({2, 4}));
  own.graph->output_node()->args[0].value->producer->autocast = graph::AutocastSetting{.enabled = true};
  EXPECT_ERROR(export_pt2(*cast), "autocast of the model's own");
  OneCall call(at::kFloat, {2, 4});
  const auto number = [](int64_t n) { return c10::IValue(n); };
  const Module unknown =
      call.module("ulp::quantize",
                  {call.x, call.store("s", torch::ones({1})), call.store("z", torch::zeros({1}, torch::kInt)),
                   number(-1), number(0), number(255), number(static_cast<int64_t>(at::kByte))},
                  torch::ones({2, 4}));
  call.x->meta.reset();
  EXPECT_ERROR(export_pt2(*unknown), "are not known");
}

TEST(ExportPt2, MoreEntriesThanAPlainZipFileHolds) {
  exchange::Pt2Options many;
  for (int i = 0; i < 66'000; ++i) many.metadata[std::to_string(i)] = "";
  EXPECT_EQ(written(*images(), many).entries.count("extra/65999"), 1U);
}

}  // namespace ulp::test
