#include "ulp/app/model_io/gguf_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/io/pretrained_weights.h"
#include "ulp/models/gpt2.h"

namespace ulp::app {

namespace {

constexpr const char* kLoadGgufWhere = "app.load_gguf";

/// The heads of attention, which no tensor tells.
int64_t heads_of(const exchange::GgufModel& file, const std::string& source) {
  constexpr const char* kKey = "gpt2.attention.head_count";
  const nlohmann::json metadata = nlohmann::json::parse(file.metadata);
  const auto found = metadata.find(kKey);
  if (found == metadata.end() || !found->is_number_integer() || *found < 1 || *found > 65536)
    fail_file(kLoadGgufWhere, "expected ", kKey, " in 1..65536 in '", source, "', got ",
              found == metadata.end() ? "none" : found->dump().substr(0, 100));
  return found->get<int64_t>();
}

/// As large as the tensors.
models::Gpt2Config config_of(const exchange::GgufModel& file, const io::NamedTensors& tensors,
                             const std::string& source) {
  const auto matrix = [&](const char* name) {
    const auto found = std::ranges::find(tensors, name, &io::NamedTensors::value_type::first);
    if (found == tensors.end() || found->second.dim() != 2)
      fail_file(kLoadGgufWhere, "expected GPT-2's matrix '", name, "' in '", source, "'");
    return found->second;
  };
  models::Gpt2Config config{.dropout = 0, .attention_dropout = 0};
  const at::Tensor words = matrix("wte.weight");
  config.vocab_size = words.size(0);
  config.width = words.size(1);
  config.max_length = matrix("wpe.weight").size(0);
  config.layers =
      std::ranges::count_if(tensors, [](const auto& one) { return one.first.ends_with(".ln_1.weight"); });
  config.heads = heads_of(file, source);
  try {
    config.validate();
  } catch (const Error& error) {
    throw FileError(std::string(error.what()) + " in '" + source + "'", error.info());
  }
  return config;
}

}  // namespace

ModelSpec gguf_spec(const exchange::GgufModel& file, const std::filesystem::path& path) {
  const models::Gpt2Config config = config_of(file, exchange::gpt2_tensors(file), path.string());
  return {.name = "gpt2",
          .kind = NetworkKind::language,
          .num_classes = config.vocab_size,
          .max_length = config.max_length};
}

std::shared_ptr<models::TextModel> gguf_network(const exchange::GgufModel& file,
                                                const std::filesystem::path& path) {
  const io::NamedTensors tensors = exchange::gpt2_tensors(file);
  auto model = models::make_gpt2(config_of(file, tensors, path.string()));
  io::assign_pretrained(*model, tensors, /*strict=*/true, path.string());
  model->eval();
  return model;
}

}  // namespace ulp::app
