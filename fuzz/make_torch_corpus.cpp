// Writes the files that fuzzing of what needs LibTorch starts from: make_torch_corpus FOLDER GOLDEN, where GOLDEN
// is tests/golden, with arrays that NumPy wrote and archives of torch.export.
#include <torch/types.h>
#include <torch/utils.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "checkpoint_net.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/gguf.h"
#include "ulp/graph/capture/capture.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/graph_file.h"
#include "ulp/io/pretrained_weights.h"
#include "ulp/io/tokenizer/train_tokenizer.h"
#include "ulp/models/gpt2.h"
#include "ulp/prune/storage/compressed_file.h"
#include "ulp/quant/any_recipe.h"
#include "ulp/quant/quantize.h"
#include "ulp/quant/weights/weights.h"

namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

void write_recipes(const fs::path& folder) {
  using namespace ulp::quant;
  for (const std::string& name : recipe_profiles()) write(folder / name, to_json(Recipe::profile(name)));
  Recipe detailed = Recipe::x86_int8();
  Override of_linear;
  of_linear.op = "linear";
  of_linear.activation = detailed.activation;
  of_linear.weight = detailed.weight;
  detailed.overrides = {of_linear};
  detailed.skip_modules = {"layer1.*"};
  write(folder / "detailed", to_json(detailed));
  write(folder / "dynamic", to_json(DynamicRecipe()));
  write(folder / "weights", to_json(WeightOnlyRecipe::four_bits()));
  write(folder / "qat", to_json(QatRecipe()));
}

void write_checkpoints(const fs::path& folder) {
  fs::create_directories(folder);
  for (const std::string kind : {"SGD", "Adam", "AdamW", "ulp::amp::FusedOptimizer"}) {
    torch::manual_seed(1);
    ulp::fuzz::CheckpointNet net(kind);
    net.train();
    ulp::io::CheckpointParts parts = net.parts();
    parts.scaler = {{"scale", 1024.0}};
    parts.config = "{\"epochs\":1}";
    ulp::io::save_checkpoint(folder / kind.substr(kind.rfind(':') + 1), parts);
  }
}

/// A file with coded tensors in every form of positions.
void write_compressed(const fs::path& folder) {
  using namespace ulp::prune;
  fs::create_directories(folder);
  torch::manual_seed(2);
  const at::Tensor values = torch::randn({12, 20}), kept = torch::rand({12, 20}) < 0.2;
  const at::Tensor free = torch::where(kept, values, torch::zeros({})), shared = (free * 2).ceil() * 0.3;
  const NamedTensors tensors = {{"free", free},
                                {"half", free.to(at::kHalf).to(at::kFloat)},
                                {"shared", shared},
                                {"tied", shared},
                                {"counts", shared.to(at::kLong)},
                                {"mask", kept},
                                {"bias", torch::randn({5})}};
  for (const EntropyCoder coder : {EntropyCoder::none, EntropyCoder::smallest}) {
    for (const Positions positions :
         {Positions::dense, Positions::bitmask, Positions::gaps, Positions::csr}) {
      save_compressed(folder / (std::string(ulp::enum_name(coder)) + "_" + ulp::enum_name(positions)),
                      tensors, {.coder = coder, .positions = positions});
    }
  }
}

/// Sizes that follow a free dimension, both modes, and tensors that share memory or have strides of their own.
void write_graphs(const fs::path& folder) {
  fs::create_directories(folder);
  torch::manual_seed(4);
  ulp::fuzz::CheckpointNet net("SGD");
  net.model->register_buffer("turned", torch::randn({2, 3}).t());
  net.model->register_parameter("tied", net.model->weight);
  const auto forward = [&](const std::vector<at::Tensor>& inputs) -> c10::IValue {
    const at::Tensor flat = inputs[0].reshape({-1, 3});
    const at::Tensor y = torch::dropout(net.model(flat), 0.5, net.model->is_training());
    return (y + flat.matmul(net.model->named_buffers()["turned"])).view({inputs[0].size(0), -1});
  };
  const auto model =
      ulp::graph::capture(*net.model, forward, {torch::randn({2, 4, 3})}, {.free = {{0, 1, "time"}}});
  ulp::io::save_graph(folder / "linear", *model);
}

/// Layers of each kind in float, and the same in codes.
void write_onnx(const fs::path& folder) {
  torch::manual_seed(5);
  ulp::fuzz::CheckpointNet net("SGD");
  net.model->register_parameter("kernel", torch::randn({3, 2, 3, 3}));
  net.model->register_parameter("table", torch::randn({4, 3}));
  const auto image = [&](const std::vector<at::Tensor>& inputs) -> c10::IValue {
    const at::Tensor y = torch::conv2d(inputs[0], net.model->named_parameters()["kernel"], {}, 1, 1).relu();
    return net.model(torch::max_pool2d(y, 2).mean({2, 3}));
  };
  const auto images = ulp::graph::capture(*net.model, image, {torch::randn({2, 2, 4, 4})});
  const auto text = [&](const std::vector<at::Tensor>& inputs) -> c10::IValue {
    const at::Tensor y = torch::embedding(net.model->named_parameters()["table"], inputs[0]);
    return torch::softmax(net.model(torch::gelu(torch::layer_norm(y, {3}))), -1)
        .view({inputs[0].size(0), -1});
  };
  const at::Tensor ids = torch::zeros({2, 4}, torch::kLong);
  const auto texts = ulp::graph::capture(*net.model, text, {ids}, {.free = {{0, 1, "time"}}});
  const auto prepared = ulp::quant::prepare(images, ulp::quant::Recipe::onnx_qdq());
  prepared->forward(torch::randn({2, 2, 4, 4}));
  write(folder / "image", ulp::exchange::export_onnx(*images));
  write(folder / "text", ulp::exchange::export_onnx(*texts));
  write(folder / "codes", ulp::exchange::export_onnx(*ulp::quant::convert(prepared)));
  for (const int64_t bits : {4, 8}) {
    const auto small = ulp::quant::quantize_weights(texts, {.bits = bits, .group = 2});
    write(folder / ("weights" + std::to_string(bits)), ulp::exchange::export_onnx(*small));
  }
  // Weights that are stored as [in, out], as its metadata say.
  const auto model =
      ulp::models::make_gpt2({.vocab_size = 3, .max_length = 2, .width = 4, .layers = 1, .heads = 2});
  model->eval();
  const at::Tensor words = torch::zeros({2, 2}, torch::kLong);
  write(folder / "gpt2", ulp::exchange::export_onnx(*ulp::capture(*model, {words})));
}

void write_gguf(const fs::path& folder) {
  using namespace ulp::exchange;
  fs::create_directories(folder);
  torch::manual_seed(6);
  const auto model =
      ulp::models::make_gpt2({.vocab_size = 3, .max_length = 2, .width = 32, .layers = 1, .heads = 2});
  for (const GgufType type : {GgufType::f32, GgufType::q8_0, GgufType::q4_0})
    export_gguf(*model, folder / ulp::enum_name(type), {.type = type, .heads = 2});
}

/// A shard, and an index of two that the harness has.
void write_published(const fs::path& folder) {
  fs::create_directories(folder);
  torch::manual_seed(7);
  const auto model =
      ulp::models::make_gpt2({.vocab_size = 3, .max_length = 2, .width = 4, .layers = 1, .heads = 2});
  ulp::io::save_pretrained(folder / "shard", *model);
  const auto state = ulp::io::named_state(*model);
  std::string places;
  for (size_t i = 0; i < state.size(); ++i)
    places += (i == 0 ? "\"" : ",\"") + state[i].first + "\":\"" + (i < state.size() / 2 ? "one" : "two") +
              ".safetensors\"";
  write(folder / "index", "{\"metadata\":{\"total_size\":1},\"weight_map\":{" + places + "}}");
}

void write_tokenizers(const fs::path& folder) {
  using namespace ulp::io;
  const std::string text = "low lower lowest caf\xC3\xA9\nthe lower the slow\n";
  write(folder / "bpe", train_tokenizer(text, {.vocab_size = 264, .min_frequency = 1}).to_json());
  const TokenizerTraining words{.kind = TokenizerKind::wordpiece, .vocab_size = 40, .min_frequency = 1};
  write(folder / "wordpiece", train_tokenizer(text, words).to_json());
}

void write_idx(const fs::path& folder) {
  const std::string images = std::string("\0\0\x08\3\0\0\0\2\0\0\0\3\0\0\0\2", 16) + std::string(12, 'x');
  write(folder / "images", images);
  write(folder / "floats", std::string("\0\0\x0d\1\0\0\0\2", 8) + std::string(8, '\x3f'));
  gzFile packed = gzopen((folder / "packed").c_str(), "wb");
  gzwrite(packed, images.data(), static_cast<unsigned>(images.size()));
  gzclose(packed);
}

/// Files of these kinds, by the ends of their names, each kind into a folder of its own.
void copy_files(const fs::path& golden, const std::vector<std::string>& kinds, const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(golden)) {
    const std::string ending = entry.path().extension().string();
    for (const std::string& kind : kinds) {
      if (ending != "." + kind) continue;
      fs::create_directories(folder / kind);
      fs::copy_file(entry.path(), folder / kind / entry.path().stem(), fs::copy_options::overwrite_existing);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: make_torch_corpus FOLDER GOLDEN\n";
    return 2;
  }
  const fs::path folder = argv[1];
  write_recipes(folder / "recipe");
  write_checkpoints(folder / "checkpoint");
  write_compressed(folder / "compressed");
  write_graphs(folder / "graph");
  write_onnx(folder / "onnx");
  write_gguf(folder / "gguf");
  write_published(folder / "published");
  write_tokenizers(folder / "tokenizer");
  write_idx(folder / "idx");
  copy_files(fs::path(argv[2]) / "numpy", {"npy", "npz"}, folder);
  copy_files(fs::path(argv[2]) / "pt2", {"pt2"}, folder);
  copy_files(fs::path(argv[2]) / "gguf", {"gguf"}, folder);
  copy_files(fs::path(argv[2]) / "tf2onnx", {"onnx"}, folder);
  write(folder / "text" / "lines", "good\tall is well\nbad\tnothing is\r\ngood\tstill\n");
  write(folder / "text" / "plain", "One long text of some words, without a tab.");
  return 0;
}
