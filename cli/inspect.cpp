// ulp inspect: what is in an engine file, a model file or any safetensors file; a reference network's graph.
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "ulp/base/error.h"
#include "ulp/base/safetensors.h"
#include "ulp/graph/graph_module.h"
#include "ulp/models/registry.h"
#include "ulp/runtime/plan/plan.h"

namespace ulp::cli {

namespace {

struct Flags : CommonFlags {
  std::string what;
  bool graph = false, dot = false;
  ScriptShape shape;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (int64_t size : shape)
    text += (text.empty() ? "" : " x ") + (size == runtime::kBatch ? "N" : std::to_string(size));
  return text.empty() ? "scalar" : text;
}

report::Table steps_table(const runtime::Plan& plan) {
  report::Table table{.title = "Steps",
                      .columns = {{"step"}, {"op"}, {"reads"}, {"writes"}, {"type"}, {"attributes"}}};
  for (const runtime::Step& step : plan.steps) {
    std::string reads;
    for (int32_t input : step.inputs) reads += (reads.empty() ? "" : ", ") + plan.tensors[input].name;
    const runtime::TensorInfo& output = plan.tensors[step.output];
    table.add_row({step.name, std::string(runtime::to_string(step.op)), reads,
                   output.name + " [" + shape_text(output.shape) + "]",
                   std::string(runtime::to_string(output.type)), runtime::attributes_text(step.attributes)});
  }
  return table;
}

report::Table tensors_table(const SafetensorsFile& file) {
  report::Table table{.title = "Tensors", .columns = {{"name"}, {"dtype"}, {"shape"}, {"size", "bytes"}}};
  for (const TensorEntry& tensor : file.tensors()) {
    table.add_row(
        {tensor.name, tensor.dtype, shape_text(tensor.shape), static_cast<double>(tensor.bytes.size())});
  }
  return table;
}

void show_graph(const Flags& flags, graph::GraphModule& module) {
  std::ostringstream text;
  if (flags.dot) {
    text << graph::to_dot(module.graph());
  } else {
    text << module.graph();
  }
  if (flags.json) return print_json({{"graph", text.str()}});
  std::cout << text.str();
}

void show_file(const Flags& flags) {
  const SafetensorsFile file(flags.what);
  const bool engine = file.metadata().contains("ulp.plan");
  nlohmann::json json;
  json["file"] = flags.what;
  json["bytes"] = std::filesystem::file_size(flags.what);
  json["kind"] = engine ? "engine" : "safetensors";
  for (const auto& [key, value] : file.metadata()) {
    if (key != "ulp.plan") json["metadata"][key] = value;
  }
  std::vector<report::Table> tables;
  if (engine) {
    tables.push_back(steps_table(runtime::Plan::load(flags.what)));
    json["steps"] = to_json(tables.back());
  }
  tables.push_back(tensors_table(file));
  json["tensors"] = to_json(tables.back());
  if (flags.json) return print_json(json);
  std::cout << flags.what << ": " << json["kind"].get<std::string>() << ", " << json["bytes"] << " bytes\n";
  for (const auto& [key, value] : file.metadata()) {
    if (key != "ulp.plan") std::cout << "  " << key << " = " << value << '\n';
  }
  for (const report::Table& table : tables) {
    std::cout << '\n';
    print_table(table);
  }
}

bool is_reference_network(const std::string& name) {
  const auto names = models::model_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

void run(const Flags& flags) {
  apply(flags);
  if (is_reference_network(flags.what)) {
    app::ModelSpec spec = flags.shape.spec();
    spec.name = flags.what;
    auto model = models::make_model(spec.name, {spec.in_channels, spec.num_classes, spec.image_size});
    return show_graph(flags, *app::capture_model(*model, spec));
  }
  if (flags.graph || flags.dot) {
    return show_graph(flags, *app::load_model_file(flags.what, flags.shape.spec()).graph);
  }
  show_file(flags);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = add_command(app, "inspect", "Show what a file holds, or the graph of a model",
                                  "  ulp inspect model.int8.ulp\n  ulp inspect model.safetensors --graph\n"
                                  "  ulp inspect resnet20 --dot | dot -Tsvg > resnet20.svg\n",
                                  *flags);
  command
      ->add_option("what", flags->what, "An engine, model or safetensors file, or a reference network's name")
      ->required();
  command->add_flag("--graph", flags->graph, "Show the captured graph of a model file");
  command->add_flag("--dot", flags->dot, "Show the graph in Graphviz's language");
  flags->shape.add_to(*command);
  command->callback([flags] { run(*flags); });
}

}  // namespace ulp::cli
