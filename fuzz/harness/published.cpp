// Published weights: a shard in the safetensors container, or an index of shards, for a small GPT-2. What is refused changes nothing.
#include <torch/types.h>

#include <fstream>
#include <map>

#include "container_mutator.h"
#include "harness.h"
#include "ulp/io/pretrained_weights.h"
#include "ulp/models/gpt2.h"

namespace {

namespace fs = std::filesystem;

/// A folder of this process with two shards, as the index of the corpus names them.
class Shards {
 public:
  Shards() : folder_(fs::temp_directory_path() / ("ulp_published_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
    const auto state = ulp::io::named_state(*model());
    const size_t half = state.size() / 2;
    ulp::io::save_tensors(folder_ / "one.safetensors", {state.begin(), state.begin() + half});
    ulp::io::save_tensors(folder_ / "two.safetensors", {state.begin() + half, state.end()});
  }
  ~Shards() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

  static std::shared_ptr<ulp::models::TextModel> model() {
    return ulp::models::make_gpt2({.vocab_size = 3, .max_length = 2, .width = 4, .layers = 1, .heads = 2});
  }
  fs::path index(const uint8_t* data, size_t size) const {
    const fs::path path = folder_ / "model.safetensors.index.json";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    return path;
  }

 private:
  fs::path folder_;
};

void read(const fs::path& path) {
  const auto model = Shards::model();
  const auto parameters = model->named_parameters();
  std::map<std::string, at::Tensor> before;
  for (const auto& one : parameters) before.emplace(one.key(), one.value().detach().clone());
  if (ulp::fuzz::refused([&] { ulp::io::load_pretrained(path, *model, /*strict=*/true); })) {
    for (const auto& one : parameters)
      ulp::fuzz::require(torch::equal(one.value(), before.at(one.key())), "nothing of what is refused");
  }
  ulp::fuzz::refused([&] { ulp::io::load_pretrained(path, *model, /*strict=*/false); });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Shards shards;
  if (size > 0 && data[0] == '{') {
    read(shards.index(data, size));
  } else {
    read(ulp::fuzz::MemoryFile(data, size).path());
  }
  return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  static const ulp::fuzz::Vocabulary vocabulary = {
      .words = {"one.safetensors", "two.safetensors", "../one.safetensors", "model.safetensors.index.json",
                "wte.weight", "transformer.wte.weight", "lm_head.weight", "module.wpe.weight"},
      .fields = {{"weight_map", nlohmann::json::object()}, {"lm_head.weight", "two.safetensors"}}};
  const bool is_index = size > 0 && data[0] == '{';
  return is_index ? ulp::fuzz::mutate_text(data, size, max_size, seed, vocabulary)
                  : ulp::fuzz::mutate_container(data, size, max_size, seed, vocabulary);
}
