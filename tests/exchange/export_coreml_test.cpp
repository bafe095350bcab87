// Core ML packages: layout, names, sizes, weights, refusals. What the programs compute is compared by
// bench/peers/coreml_check.py.
#include "ulp/exchange/export_coreml.h"

#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <set>

#include "coreml_reader.h"
#include "coreml_run.h"
#include "error_of.h"
#include "temporary_folder.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/registry.h"
#include "ulp/models/text_registry.h"
#include "ulp/quant/operators/ops.h"
#include "ulp/quant/scheme/round_trip.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::test {

namespace {

using exchange::CoreMlOptions;
using exchange::export_coreml;
using Module = std::shared_ptr<graph::GraphModule>;
using Ints = std::vector<int64_t>;
using Texts = std::vector<std::string>;

/// A root module with a forward of any kind.
struct CoreMlNet : torch::nn::Module {
  std::function<at::Tensor(const at::Tensor&)> body;
  at::Tensor forward(at::Tensor x) { return body(x); }
};

Module coreml_captured(const std::shared_ptr<CoreMlNet>& net, const at::Tensor& x,
                       const graph::CaptureOptions& options = {}) {
  net->eval();
  Module module = capture(net, {x}, options);
  module->eval();
  return module;
}

Module coreml_function(std::function<at::Tensor(const at::Tensor&)> body, const at::Tensor& x,
                       const graph::CaptureOptions& options = {}) {
  auto net = std::make_shared<CoreMlNet>();
  net->body = std::move(body);
  return coreml_captured(net, x, options);
}

Module coreml_network(const std::string& name, int64_t channels, int64_t side) {
  torch::manual_seed(0);
  const auto model = models::make_model(name, {.in_channels = channels, .image_size = side});
  model->eval();
  return capture(*model, {torch::zeros({2, channels, side, side})});
}

MilModel written(const Module& module, const CoreMlOptions& options = {}) {
  const TemporaryFolder folder;
  export_coreml(*module, folder / "m.mlpackage", options);
  return read_coreml(folder / "m.mlpackage");
}

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()};
}

/// Names are identifiers, each is made once, before it is read, and every result is there.
void expect_sound(const MilModel& model) {
  const std::regex identifier("[A-Za-z_][A-Za-z0-9_]*");
  std::set<std::string> known;
  for (const MilFeature& input : model.inputs) EXPECT_TRUE(known.insert(input.name).second) << input.name;
  for (const MilOperation& one : model.operations) {
    for (const auto& [parameter, names] : one.inputs) {
      for (const std::string& name : names)
        EXPECT_TRUE(known.contains(name)) << name << " of " << one.outputs[0];
    }
    for (const std::string& output : one.outputs) {
      EXPECT_TRUE(std::regex_match(output, identifier)) << output;
      EXPECT_TRUE(known.insert(output).second) << output;
    }
  }
  for (const std::string& result : model.results) EXPECT_TRUE(known.contains(result)) << result;
}

}  // namespace

TEST(ExportCoreMl, DescribesTheModelAndItsItems) {
  const Module lenet = coreml_network("lenet5", 1, 28);
  const MilModel model = written(lenet, {.batch = 3, .metadata = {{"made", "here"}}});
  EXPECT_EQ(model.specification, 7);
  EXPECT_EQ(model.opset, "CoreML6");
  EXPECT_EQ(model.manifest.at("fileFormatVersion"), "1.0.0");
  EXPECT_EQ(model.manifest.at("itemInfoEntries").size(), 2);
  EXPECT_EQ(model.metadata.at("made"), "here");
  ASSERT_EQ(model.inputs.size(), 1);
  EXPECT_EQ(model.inputs[0].shape, (Ints{3, 1, 28, 28}));
  EXPECT_EQ(model.inputs[0].type, 65568);
  ASSERT_EQ(model.outputs.size(), 1);
  EXPECT_EQ(model.outputs[0].shape, (Ints{3, 10}));
  EXPECT_EQ(model.results, Texts{model.outputs[0].name});
  expect_sound(model);
}

TEST(ExportCoreMl, PutsWeightsWhereTheProgramSays) {
  const Module lenet = coreml_network("lenet5", 1, 28);
  const MilModel model = written(lenet);
  std::set<int64_t> places;
  for (const auto& item : lenet->named_parameters()) {
    const MilValue& value =
        model.maker(std::regex_replace(item.key(), std::regex("\\."), "_")).attributes.at("val");
    EXPECT_EQ(value.shape, item.value().sizes().vec());
    EXPECT_EQ(value.type, 11);
    EXPECT_EQ(value.blob_type, value.blob < 0 ? 0 : 2);
    EXPECT_EQ(value.blob >= 0, item.value().numel() >= 10) << item.key();
    if (value.blob < 0) continue;
    EXPECT_TRUE(places.insert(value.blob).second);
    EXPECT_EQ(value.bytes, bytes_of(item.value())) << item.key();
  }
  uint32_t count = 0, version = 0;
  std::memcpy(&count, model.weights.data(), sizeof count);
  std::memcpy(&version, model.weights.data() + 4, sizeof version);
  EXPECT_EQ(count, places.size());
  EXPECT_EQ(version, 2);
  EXPECT_EQ(*places.begin(), 64);
}

TEST(ExportCoreMl, WritesTheParametersOfLayers) {
  auto net = std::make_shared<CoreMlNet>();
  auto conv = net->register_module(
      "conv",
      torch::nn::Conv2d(
          torch::nn::Conv2dOptions(4, 8, {3, 5}).stride({2, 1}).padding({1, 2}).dilation({1, 2}).groups(2)));
  net->body = [&](const at::Tensor& x) {
    return torch::avg_pool2d(conv->forward(x), {2, 3}, {1, 1}, {1, 0}, /*ceil_mode=*/false,
                             /*count_include_pad=*/false);
  };
  const MilModel model = written(coreml_captured(net, torch::zeros({2, 4, 16, 16})));
  const MilOperation made = model.of("conv").at(0);
  EXPECT_EQ(model.constant(made, "strides").ints, (Ints{2, 1}));
  EXPECT_EQ(model.constant(made, "pad").ints, (Ints{1, 1, 2, 2}));
  EXPECT_EQ(model.constant(made, "pad_type").word, "custom");
  EXPECT_EQ(model.constant(made, "dilations").ints, (Ints{1, 2}));
  EXPECT_EQ(model.constant(made, "groups").ints, Ints{2});
  EXPECT_EQ(made.shape, (Ints{1, 8, 8, 12}));
  const MilOperation pool = model.of("avg_pool").at(0);
  EXPECT_EQ(model.constant(pool, "kernel_sizes").ints, (Ints{2, 3}));
  EXPECT_EQ(model.constant(pool, "pad").ints, (Ints{1, 1, 0, 0}));
  EXPECT_EQ(model.constant(pool, "exclude_padding_from_average").ints, Ints{1});
}

TEST(ExportCoreMl, FoldsBatchNormsAndWhatFollowsNoInput) {
  EXPECT_TRUE(written(coreml_network("resnet8", 3, 32)).of("batch_norm").empty());
  const MilModel model = written(coreml_function(
      [](const at::Tensor& x) {
        return x + torch::arange(4, torch::kFloat).square().view({1, 4});
      },
      torch::zeros({2, 4})));
  Texts ops;
  for (const MilOperation& one : model.operations) ops.push_back(one.op);
  EXPECT_EQ(ops, (Texts{"const", "add"}));
  EXPECT_EQ(model.operations[0].attributes.at("val").floats, (std::vector<float>{0, 1, 4, 9}));
}

TEST(ExportCoreMl, KeepsHalvesBitForBit) {
  const Module lenet = coreml_network("lenet5", 1, 28);
  const MilModel model = written(lenet, {.fp16 = true});
  EXPECT_EQ(model.inputs.at(0).type, 65568);
  EXPECT_EQ(model.outputs.at(0).type, 65568);
  EXPECT_EQ(model.of("cast").size(), 2);
  const MilOperation conv = model.of("conv").at(0);
  EXPECT_EQ(conv.type, 10);
  const MilValue& weight = model.constant(conv, "weight");
  EXPECT_EQ(weight.blob_type, 1);
  EXPECT_EQ(weight.bytes, bytes_of(lenet->named_parameters()["conv1.weight"].to(torch::kHalf)));
}

TEST(ExportCoreMl, WritesWeightsOfEightBits) {
  const Module lenet = coreml_network("lenet5", 1, 28);
  for (const bool fp16 : {false, true}) {
    const MilModel model = written(lenet, {.fp16 = fp16, .int8_weights = true});
    ASSERT_EQ(model.of("constexpr_affine_dequantize").size(), 5);
    for (const char* op : {"conv", "linear"}) {
      const MilOperation weight = model.maker(model.of(op).at(0).inputs.at("weight").at(0));
      const MilValue& codes = weight.attributes.at("quantized_data");
      EXPECT_EQ(codes.blob_type, 4);
      EXPECT_EQ(weight.type, fp16 ? 10 : 11);
      EXPECT_EQ(weight.attributes.at("axis").ints, Ints{0});
      EXPECT_EQ(weight.attributes.at("zero_point").bytes, std::string(1, '\0'));
    }
  }
  const MilModel model = written(lenet, {.int8_weights = true});
  const MilOperation weight = model.maker(model.of("linear").at(0).inputs.at("weight").at(0));
  const at::Tensor numbers = lenet->named_parameters()["fc1.weight"].detach();
  const quant::QParams params = quant::qparams_of(numbers, quant::WeightOnlyRecipe{}.scheme());
  EXPECT_EQ(weight.attributes.at("quantized_data").bytes, bytes_of(quant::quantize(numbers, params)));
  EXPECT_EQ(weight.attributes.at("scale").bytes, bytes_of(params.scale));
  EXPECT_EQ(weight.attributes.at("scale").shape, Ints{numbers.size(0)});
}

TEST(ExportCoreMl, KeepsTheCodesOfWeightsThatHaveSome) {
  const Module lenet = coreml_network("lenet5", 1, 28);
  const MilModel model = written(quant::quantize_weights(lenet));
  EXPECT_EQ(model.of("constexpr_affine_dequantize").size(), 3);
  const Module four = quant::quantize_weights(lenet, {.bits = 4});
  EXPECT_ERROR(written(four), "expected weights of 8 bits");
}

TEST(ExportCoreMl, TakesSizesOfFreeDimensions) {
  graph::CaptureOptions options;
  options.free = {{0, 1, "time", 12}};
  const Module module =
      coreml_function([](const at::Tensor& x) { return x.flatten(1) * 2; }, torch::zeros({2, 6, 4}), options);
  EXPECT_EQ(written(module).inputs.at(0).shape, (Ints{1, 12, 4}));
  EXPECT_EQ(written(module, {.sizes = {{"time", 5}}}).outputs.at(0).shape, (Ints{1, 20}));
  EXPECT_ERROR(written(module, {.sizes = {{"tim", 5}}}), "got one of 'tim'");
  EXPECT_ERROR(written(module, {.sizes = {{"time", 13}}}), "13");
  EXPECT_ERROR(written(module, {.batch = 0}), "expected a batch of 1 or more, got 0");
}

TEST(ExportCoreMl, WritesTextsWithIdsOf32Bits) {
  const auto model =
      models::make_text_model("gpt2", {.task = models::TextTask::language_modelling, .max_length = 8});
  model->eval();
  const Module module = capture(model, {torch::ones({2, 8}, torch::kLong)});
  module->eval();
  const MilModel read = written(module);
  EXPECT_EQ(read.inputs.at(0).type, 131104);
  EXPECT_EQ(read.of("range_1d").size(), 0);
  EXPECT_FALSE(read.of("gather").empty());
  expect_sound(read);
}

TEST(ExportCoreMl, NamesValuesOfNetworksSoundly) {
  for (const char* name : {"resnet8", "binary_lenet5"}) {
    const bool small = std::string(name) == "binary_lenet5";
    expect_sound(written(coreml_network(name, small ? 1 : 3, small ? 28 : 32)));
  }
}

/// Functions without an operation of their own, or with arguments that it has not: what the program computes by MIL's
/// rules is LibTorch's.
TEST(ExportCoreMl, ComputesWhatHasNoOperation) {
  namespace F = torch::nn::functional;
  using T = at::Tensor;
  torch::manual_seed(0);
  const T image = torch::randn({2, 4, 6, 8}), weight = torch::randn({4, 3, 3, 3}), bias = torch::randn({3});
  const T ids = torch::randint(6, {2, 4, 3, 8}), source = torch::randn({2, 4, 3, 8});
  const std::pair<const char*, std::function<T(const T&)>> all[] = {
      {"pool with a divisor",
       [](const T& x) {
         return torch::avg_pool2d(x, {3, 2}, {2, 2}, {1, 1}, true, true, 5);
       }},
      {"dilated pool",
       [](const T& x) {
         return torch::max_pool2d(x, {2, 3}, {1, 2}, {1, 1}, {2, 2});
       }},
      {"uneven averages",
       [](const T& x) {
         return torch::adaptive_avg_pool2d(x, {4, 5});
       }},
      {"uneven maxima",
       [](const T& x) {
         return std::get<0>(torch::adaptive_max_pool2d(x, {4, 8}));
       }},
      {"bicubic",
       [](const T& x) {
         return torch::upsample_bicubic2d(x, {9, 5}, false);
       }},
      {"nearest-exact",
       [](const T& x) {
         return at::_upsample_nearest_exact2d(x, {9, 5});
       }},
      {"antialias",
       [](const T& x) {
         return at::_upsample_bilinear2d_aa(x, {3, 5}, false);
       }},
      {"nearest of sequences", [](const T& x) { return torch::upsample_nearest1d(x.flatten(2), {70}); }},
      {"linear of volumes",
       [](const T& x) {
         return torch::upsample_trilinear3d(x.unsqueeze(2), {2, 9, 5}, false);
       }},
      {"circular",
       [](const T& x) {
         return at::pad(x, {2, 1, 0, 3}, "circular");
       }},
      {"pads that cut",
       [](const T& x) {
         return torch::constant_pad_nd(x, {-1, 2, 1, -2}, 3);
       }},
      {"output_padding",
       [=](const T& x) {
         return torch::conv_transpose2d(x, weight, bias, {3, 2}, {0, 1}, {2, 1}, 1, {1, 2});
       }},
      {"pixel_unshuffle", [](const T& x) { return torch::pixel_unshuffle(x, 2); }},
      {"remainder", [](const T& x) { return torch::remainder(x, 0.75); }},
      {"floor division", [](const T& x) { return torch::div(x, 0.75, "floor"); }},
      {"division towards 0", [](const T& x) { return torch::div(x, 0.75, "trunc"); }},
      {"product", [](const T& x) { return x.prod(2); }},
      {"any", [](const T& x) { return x.clamp_min(1).sub(1).any(1).to(torch::kFloat); }},
      {"all", [](const T& x) { return (x > -1).all(3, true).to(torch::kFloat); }},
      {"sort", [](const T& x) { return std::get<0>(x.sort(1, true)); }},
      {"places of sort", [](const T& x) { return std::get<1>(x.sort(2)).to(torch::kFloat) + x; }},
      {"topk", [](const T& x) { return std::get<0>(x.topk(2, 3, false)); }},
      {"cumsum", [](const T& x) { return x.cumsum(-1); }},
      {"scatter", [=](const T& x) { return x.scatter(2, ids.slice(2, 0, 1), source.slice(2, 0, 1)); }},
      {"scatter of a number", [=](const T& x) { return x.scatter(2, ids, 0.5); }},
      {"scatter_add", [=](const T& x) { return x.scatter_add(2, ids, source); }},
      {"tile", [](const T& x) { return torch::tile(x, {2, 3}); }},
      {"mT", [](const T& x) { return x.mT(); }},
      {"var", [](const T& x) { return x.var({1, 3}, 1, true); }},
      {"norm", [](const T& x) { return F::normalize(x, F::NormalizeFuncOptions().dim(1)); }},
      {"logsumexp", [](const T& x) { return torch::logsumexp(x, {2}); }},
      {"instance norm", [](const T& x) { return F::instance_norm(x); }},
      {"selu", [](const T& x) { return torch::selu(x); }},
      {"softplus by 2", [](const T& x) { return F::softplus(x, F::SoftplusFuncOptions().beta(2)); }},
      {"glu", [](const T& x) { return torch::glu(x, 1); }},
      {"hardshrink", [](const T& x) { return torch::hardshrink(x, 0.4); }},
      {"log1p", [](const T& x) { return torch::log1p(x.abs()); }},
      {"asinh", [](const T& x) { return torch::asinh(x); }},
      {"tan", [](const T& x) { return torch::tan(x * 0.3); }},
      {"isfinite", [](const T& x) { return torch::isfinite(x.sqrt()).to(torch::kFloat); }},
      {"flip", [](const T& x) { return x.flip({1, 3}); }},
      {"repeat_interleave", [](const T& x) { return x.repeat_interleave(3, 2); }},
      {"places of max", [](const T& x) { return std::get<1>(x.max(1, true)).to(torch::kFloat) + x; }},
      {"floor_divide", [](const T& x) { return torch::floor_divide(x * 4, 0.1); }},
      {"std of the C++ frontend", [](const T& x) { return x.std(2, true); }},
      {"cosine_similarity", [](const T& x) { return torch::cosine_similarity(x, x.flip({1}), 1); }},
      {"zeros_like", [](const T& x) { return torch::zeros_like(x).scatter(1, x.argmax(1, true), 1.0); }},
      {"addcdiv", [](const T& x) { return torch::addcdiv(x, x, x.abs() + 1, 2); }},
      {"nan_to_num", [](const T& x) { return torch::nan_to_num(x.sqrt(), 2); }}};
  const torch::NoGradGuard no_grad;
  for (const auto& [name, body] : all) {
    SCOPED_TRACE(name);
    const MilModel model = written(coreml_function(body, image), {.batch = 2});
    expect_sound(model);
    const T wanted = body(image), made = MilRun(model).run(image);
    ASSERT_EQ(made.sizes(), wanted.sizes());
    const double most = (made - wanted).abs().max().item<double>();
    EXPECT_LE(most, 4e-6 * wanted.abs().max().item<double>());
  }
}

TEST(ExportCoreMl, NamesWhatItCannotWrite) {
  const Module sums = coreml_function([](const at::Tensor& x) { return torch::digamma(torch::relu(x)); },
                                      torch::zeros({2, 4}));
  EXPECT_ERROR(written(sums), "aten::digamma 'digamma");
  EXPECT_ERROR(written(sums), "the names nearest to it with one are aten::");
  const Module wide = coreml_function(
      [](const at::Tensor& x) {
        return x.view({-1, 2, 1, 2, 1, 2}) + 1;
      },
      torch::zeros({2, 8}));
  EXPECT_ERROR(written(wide), "at most 5 dimensions, got 6");
  const Module one = coreml_function([](const at::Tensor& x) { return x.sum(); }, torch::zeros({2, 8}));
  EXPECT_ERROR(written(one), "expected a dimension to be left");
  const Module half =
      coreml_function([](const at::Tensor& x) { return x + 1; }, torch::zeros({2, 4}, torch::kBFloat16));
  EXPECT_ERROR(written(half), "expected inputs of f32, f16, integers or bool, got BFloat16");
}

TEST(ExportCoreMl, ReplacesPackagesAndNothingElse) {
  const Module lenet = coreml_network("lenet5", 1, 28);
  const TemporaryFolder folder;
  const auto program = [&](const std::string& name) {
    return file_bytes(folder / name / "Data" / "com.apple.CoreML" / "model.mlmodel");
  };
  export_coreml(*lenet, folder / "m.mlpackage");
  export_coreml(*lenet, folder / "again.mlpackage");
  EXPECT_EQ(program("m.mlpackage"), program("again.mlpackage"));
  export_coreml(*lenet, folder / "m.mlpackage/", {.batch = 2});
  EXPECT_EQ(read_coreml(folder / "m.mlpackage").inputs.at(0).shape[0], 2);

  std::filesystem::create_directories(folder / "mine.mlpackage");
  std::ofstream(folder / "mine.mlpackage" / "letter.txt") << "kept";
  EXPECT_ERROR(export_coreml(*lenet, folder / "mine.mlpackage"), "a folder without Manifest.json");
  EXPECT_EQ(file_bytes(folder / "mine.mlpackage" / "letter.txt"), "kept");
  std::ofstream(folder / "file.mlpackage") << "kept";
  EXPECT_ERROR(export_coreml(*lenet, folder / "file.mlpackage"), "got a file");
  EXPECT_ERROR(export_coreml(*lenet, folder / "m.onnx"), "ends in '.mlpackage'");
  EXPECT_ERROR(export_coreml(*lenet, folder / "none" / "m.mlpackage"), "none");
  size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) entries += entry.exists();
  EXPECT_EQ(entries, 4) << "temporary folders are left";
}

}  // namespace ulp::test
