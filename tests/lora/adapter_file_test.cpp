// Adapters in folders of PEFT, and merging them.
#include "ulp/lora/adapter_file.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "error_of.h"
#include "lora/networks.h"
#include "temporary_folder.h"
#include "ulp/io/safetensors.h"
#include "ulp/lora/add_lora.h"
#include "ulp/lora/merge_lora.h"
#include "ulp/models/gpt2.h"
#include "ulp/quant/weights/weights.h"

namespace ulp::lora {
namespace {

namespace fs = std::filesystem;
using at::Tensor;
using nlohmann::json;

class AdapterFile : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(6);
    captured_ = captured_net(net_);
    model_ = add_lora(captured_, {.rank = 4, .alpha = 6, .target_modules = {"up_proj", "first.side_proj"}});
    draw_adapters(*model_);
    save_adapter(folder_, *model_, "a/base");
  }
  json config() const { return json::parse(std::ifstream(folder_ / "adapter_config.json")); }
  void write(const json& config) const { std::ofstream(folder_ / "adapter_config.json") << config.dump(); }
  void set(const char* name, const json& value) const {
    json changed = config();
    changed[name] = value;
    write(changed);
  }
  io::NamedTensors tensors() const { return io::load_tensors(folder_ / "adapter_model.safetensors").tensors; }
  void write(const io::NamedTensors& tensors) const {
    io::save_tensors(folder_ / "adapter_model.safetensors", tensors, {{"format", "pt"}});
  }

  test::TemporaryFolder dir_;
  fs::path folder_ = dir_.path() / "adapter";
  SmallNet net_;
  std::shared_ptr<graph::GraphModule> captured_;
  std::shared_ptr<LoraModel> model_;
};

TEST_F(AdapterFile, HasThePeftNames) {
  const json written = config();
  EXPECT_EQ(written["peft_type"], "LORA");
  EXPECT_EQ(written["r"], 4);
  EXPECT_EQ(written["lora_alpha"].dump(), "6");
  EXPECT_EQ(written["bias"], "none");
  EXPECT_EQ(written["target_modules"], json::parse(R"(["up_proj", "first.side_proj"])"));
  EXPECT_EQ(written["base_model_name_or_path"], "a/base");
  EXPECT_EQ(written["fan_in_fan_out"], false);
  std::map<std::string, Tensor> found;
  for (const auto& [name, tensor] : tensors()) found[name] = tensor;
  EXPECT_EQ(found.size(), 6U);
  EXPECT_TRUE(
      at::equal(found.at("base_model.model.first.side_proj.lora_A.weight"), model_->a(model_->layers()[0])));
  EXPECT_TRUE(
      at::equal(found.at("base_model.model.first.side_proj.lora_B.weight"), model_->b(model_->layers()[0])));
  EXPECT_EQ(io::load_metadata(folder_ / "adapter_model.safetensors").at("format"), "pt");
}

TEST_F(AdapterFile, ComesBackWithTheSameBits) {
  const Tensor x = torch::randn({3, 32});
  const auto again = load_adapter(captured_, folder_);
  EXPECT_TRUE(at::equal(again->forward(x), model_->forward(x)));
  EXPECT_EQ(again->options(), model_->options());
  save_adapter(dir_.path() / "second", *again, "a/base");
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    std::ifstream a(folder_ / name), b(dir_.path() / "second" / name);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(a), {}),
              std::string(std::istreambuf_iterator<char>(b), {}));
  }
  const auto on_codes = load_adapter(captured_, folder_, {.base = LoraBase::nf4});
  EXPECT_EQ(on_codes->options().base, LoraBase::nf4);
  EXPECT_TRUE(at::equal(on_codes->a(on_codes->layers()[0]), model_->a(model_->layers()[0])));
}

TEST_F(AdapterFile, MergesAsThePlainFormula) {
  const auto merged = merge_lora(*model_);
  const double scaling = 1.5;
  std::map<std::string, Tensor> state;
  for (const auto& one : merged->named_parameters()) state[one.key()] = one.value();
  int merged_layers = 0;
  for (const auto& one : net_->named_parameters()) {
    Tensor expected = one.value().detach();
    for (const LoraLayer& layer : model_->layers()) {
      if (layer.weight != one.key()) continue;
      ++merged_layers;
      expected = expected + model_->b(layer).detach().mm(model_->a(layer).detach()) * scaling;
    }
    EXPECT_TRUE(at::equal(state.at(one.key()), expected)) << one.key();
    EXPECT_TRUE(state.at(one.key()).requires_grad());
  }
  EXPECT_EQ(merged_layers, 3);
  EXPECT_EQ(state.size(), net_->named_parameters().size());
  // Each of three products of up to 64 numbers in fp32, in another order.
  const Tensor x = torch::randn({3, 32}), y = model_->forward(x);
  EXPECT_LT((merged->forward(x) - y).abs().max().item<double>(),
            3 * 64 * 6e-8 * y.abs().max().item<double>() * 4);
}

TEST_F(AdapterFile, MergesIntoCodesAndSaysTheError) {
  for (const LoraBase base : {LoraBase::int8, LoraBase::int4}) {
    const auto model = load_adapter(captured_, folder_, {.base = base});
    std::vector<MergeError> errors;
    const auto coded = merge_lora_quantized(*model, &errors);
    ASSERT_EQ(errors.size(), 3U);
    // A code is off by at most half a step: the largest magnitude / 127 or / 7.
    for (const MergeError& one : errors) {
      EXPECT_GT(one.relative_error, 0) << one.path;
      EXPECT_LT(one.relative_error, base == LoraBase::int8 ? 0.01 : 0.15) << one.path;
    }
    // What has no adapter keeps its codes: those of quantize_weights().
    const auto plain = quant::quantize_weights(
        captured_, {.bits = base == LoraBase::int8 ? 8 : 4, .skip_modules = {"head"}});
    const std::string end = base == LoraBase::int8 ? ".int8" : ".int4";
    const auto codes = [&](const graph::GraphModule& from, const std::string& path) {
      return from.graph().find_attribute(path + ".weight" + end)->tensor;
    };
    EXPECT_TRUE(at::equal(codes(*coded, "first.down_proj"), codes(*plain, "first.down_proj")));
    EXPECT_FALSE(at::equal(codes(*coded, "first.up_proj"), codes(*plain, "first.up_proj")));
    const Tensor x = torch::randn({3, 32}), y = merge_lora(*model)->forward(x);
    const Tensor difference = coded->forward(x) - y;
    EXPECT_LT(difference.norm().item<double>(),
              (base == LoraBase::int8 ? 0.03 : 0.4) * y.norm().item<double>());
  }
  EXPECT_ERROR(merge_lora_quantized(*model_), "int8 or int4");
}

TEST_F(AdapterFile, TargetsThatMeanOtherLayersBecomeAPattern) {
  Adapter adapter = read_adapter(folder_);
  adapter.config.all_targets = false;
  adapter.layers.erase("second.up_proj");
  const auto model = load_adapter(captured_, adapter);
  EXPECT_EQ(model->layers().size(), 2U);
  save_adapter(folder_, *model);
  EXPECT_EQ(config()["target_modules"], R"((?:first\.side_proj|first\.up_proj))");
  EXPECT_EQ(load_adapter(captured_, folder_)->layers().size(), 2U);
}

TEST_F(AdapterFile, TakesPrefixesOfTransformers) {
  io::NamedTensors renamed;
  for (const auto& [name, tensor] : tensors())
    renamed.emplace_back("base_model.model.model." + name.substr(17), tensor);
  write(renamed);
  const Tensor x = torch::randn({3, 32});
  EXPECT_TRUE(at::equal(load_adapter(captured_, folder_)->forward(x), model_->forward(x)));
}

TEST_F(AdapterFile, Gpt2IsWrittenAsTransformersNamesIt) {
  const auto gpt2 = models::make_gpt2(models::Gpt2Config::tiny());
  const auto captured = ulp::capture(*gpt2, {torch::randint(0, 200, {2, 8})});
  const auto model = add_lora(captured, {.rank = 2, .target_modules = {"c_attn"}});
  save_adapter(folder_, *model);
  EXPECT_EQ(config()["fan_in_fan_out"], true);
  EXPECT_EQ(tensors()[0].first, "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight");
  EXPECT_EQ(load_adapter(captured, folder_)->layers().size(), model->layers().size());
}

TEST_F(AdapterFile, RefusesConfigurationsThatComputeSomethingElse) {
  const json good = config();
  const std::vector<std::pair<const char*, json>> bad = {{"use_dora", true},
                                                         {"bias", "all"},
                                                         {"bias", "lora_only"},
                                                         {"lora_bias", true},
                                                         {"modules_to_save", {"head"}},
                                                         {"rank_pattern", {{"up_proj", 8}}},
                                                         {"alpha_pattern", {{"up_proj", 8}}},
                                                         {"init_lora_weights", "pissa"},
                                                         {"init_lora_weights", "loftq"},
                                                         {"layer_replication", json::parse("[[0, 2]]")},
                                                         {"trainable_token_indices", {1}},
                                                         {"target_parameters", {"w"}},
                                                         {"use_qalora", true},
                                                         {"something_new", 3},
                                                         {"peft_type", "IA3"},
                                                         {"peft_type", json()},
                                                         {"r", 0},
                                                         {"r", 2.5},
                                                         {"r", "4"},
                                                         {"lora_alpha", "x"},
                                                         {"lora_alpha", 0},
                                                         {"lora_dropout", 1},
                                                         {"target_modules", 3},
                                                         {"use_rslora", 1}};
  for (const auto& [name, value] : bad) {
    json changed = good;
    changed[name] = value;
    write(changed);
    EXPECT_ERROR(read_adapter(folder_), std::string(name) == "r" ? "adapter_config.json" : name);
    EXPECT_EQ(test::code_of([&] { read_adapter(folder_); }), ErrorCode::bad_file);
  }
  std::ofstream(folder_ / "adapter_config.json") << "{";
  EXPECT_ERROR(read_adapter(folder_), "JSON");
  json harmless = good;
  harmless["use_dora"] = false;
  harmless["something_new"] = json::object();
  harmless["init_lora_weights"] = "gaussian";
  harmless["peft_version"] = "0.19";
  write(harmless);
  read_adapter(folder_);
}

TEST_F(AdapterFile, RefusesTensorsThatDoNotFit) {
  const io::NamedTensors good = tensors();
  const auto with = [&](size_t i, const std::string& name, const Tensor& tensor) {
    io::NamedTensors changed = good;
    changed[i] = {name, tensor};
    write(changed);
  };
  with(0, good[0].first + "x", good[0].second);
  EXPECT_ERROR(read_adapter(folder_), "weightx");
  with(0, "base_model.model.lora_A.weight", good[0].second);
  EXPECT_ERROR(read_adapter(folder_), "base_model.model.lora_A.weight");
  with(0, good[0].first, torch::zeros({5, 32}));
  EXPECT_ERROR(read_adapter(folder_), "rank 4");
  with(0, good[0].first, torch::zeros({4, 32}, at::kInt));
  EXPECT_ERROR(read_adapter(folder_), "floating-point");
  with(0, good[0].first, torch::zeros({4, 31}));
  EXPECT_ERROR(load_adapter(captured_, folder_), "another base");
  for (const float number : {NAN, INFINITY}) {
    Tensor broken = good[0].second.clone();
    broken[1][2] = number;
    with(0, good[0].first, broken);
    EXPECT_ERROR(read_adapter(folder_), "expected finite adapters");
  }
  with(0, good[0].first, torch::full({4, 32}, 1e300, at::kDouble));
  EXPECT_ERROR(read_adapter(folder_), "expected finite adapters");
  with(0, "base_model.model.absent.lora_A.weight", good[0].second);
  EXPECT_ERROR(read_adapter(folder_), "alone of");
  io::NamedTensors fewer(good.begin() + 2, good.end());
  write(fewer);
  EXPECT_ERROR(load_adapter(captured_, folder_), "not whole");
  io::NamedTensors renamed = good;
  for (auto& [name, tensor] : renamed) name.replace(name.find("proj"), 4, "pro");
  write(renamed);
  EXPECT_ERROR(load_adapter(captured_, folder_), "linear layers that the model has");
  write(good);
  fs::resize_file(folder_ / "adapter_model.safetensors",
                  fs::file_size(folder_ / "adapter_model.safetensors") - 9);
  EXPECT_EQ(test::code_of([&] { read_adapter(folder_); }), ErrorCode::bad_file);
  fs::remove(folder_ / "adapter_model.safetensors");
  EXPECT_ERROR(read_adapter(folder_), "adapter_model.safetensors");
  fs::remove(folder_ / "adapter_config.json");
  EXPECT_ERROR(read_adapter(folder_), "folder of PEFT");
}

TEST_F(AdapterFile, RefusesLayersThatItsTargetsDoNotMean) {
  set("target_modules", {"up_proj"});  // the file has one of first.side_proj, too
  EXPECT_ERROR(load_adapter(captured_, folder_), "expected adapters of layers that target_modules means");
}

TEST_F(AdapterFile, RefusesToMergeIntoInfiniteWeights) {
  io::NamedTensors large = tensors();
  for (auto& [name, tensor] : large) tensor = at::full_like(tensor, 1e30F);
  write(large);
  EXPECT_ERROR(merge_lora(*load_adapter(captured_, folder_)), "expected finite merged weights of '");
}

TEST_F(AdapterFile, IsNotWrittenWithNumbersThatAreNotFinite) {
  fs::remove_all(folder_);
  {
    const at::NoGradGuard no_grad;
    model_->b(model_->layers()[1])[0][0] = INFINITY;
  }
  EXPECT_ERROR(save_adapter(folder_, *model_), "finite");
  EXPECT_FALSE(fs::exists(folder_));
}

}  // namespace
}  // namespace ulp::lora
