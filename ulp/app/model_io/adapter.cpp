#include "ulp/app/model_io/adapter.h"

#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/graph/graph_module.h"
#include "ulp/lora/adapter_file.h"
#include "ulp/lora/add_lora.h"
#include "ulp/lora/merge_lora.h"

namespace ulp::app {

Network with_adapters(const Network& network, const ModelSpec& spec, const AdapterTraining& training) {
  const auto graph = std::static_pointer_cast<graph::GraphModule>(captured(network, spec).module);
  const std::shared_ptr<lora::LoraModel> model =
      training.from.empty() ? lora::add_lora(graph, training.options)
                            : lora::load_adapter(graph, training.from, training.options);
  return {.module = model,
          .forward = [model](const train::TaskBatch& batch) { return model->forward(batch.inputs); },
          .note = network.note};
}

std::shared_ptr<lora::LoraModel> adapters_of(const Network& network) {
  return std::dynamic_pointer_cast<lora::LoraModel>(network.module);
}

std::string describe_run(const lora::LoraModel& model) {
  return model.options().to_json() + nlohmann::json{{"base_checksum", model.base_checksum()}}.dump();
}

void merge_adapter(LoadedModel& model, const std::filesystem::path& folder, const std::string& path) {
  if (folder.empty()) return;
  const lora::Adapter adapter = lora::read_adapter(folder);
  try {
    model.graph = lora::merge_lora(*lora::load_adapter(model.graph, adapter));
  } catch (const Error& error) {
    fail_file("app.merge_adapter", "the adapter '", folder.string(), "' does not fit '", path,
              "': ", error.reason());
  }
  model.graph->eval();
  model.forward = [graph = model.graph](const at::Tensor& inputs) { return graph->forward(inputs); };
}

void save_adapters(const std::filesystem::path& folder, const lora::LoraModel& model,
                   const std::string& base) {
  lora::save_adapter(folder, model, base);
}

}  // namespace ulp::app
