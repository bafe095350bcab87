// ulp inspect: what is in an engine file, a model file or any safetensors file; a reference network's graph.
#include "ulp/app/model_io/inspect.h"

#include <iostream>
#include <memory>
#include <sstream>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "ulp/graph/graph_module.h"
#include "ulp/report/format.h"

namespace ulp::cli {

namespace {

struct InspectFlags : CommonFlags {
  std::string what;
  bool graph = false, dot = false;
  ScriptShape shape;
};

void show_graph(const InspectFlags& flags, graph::GraphModule& module) {
  std::ostringstream text;
  if (flags.dot) {
    text << graph::to_dot(module.graph());
  } else {
    text << module.graph();
    for (const std::string& note : module.notes()) text << "# " << note << '\n';
  }
  if (flags.json) return print_json({{"graph", text.str()}});
  std::cout << printable(text.str());
}

/// The beginning of what is long, such as a tokenizer; --json has all of it.
std::string beginning(const std::string& value) {
  constexpr size_t kMost = 200;
  if (value.size() <= kMost) return value;
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(value[end]) & 0xC0U) == 0x80U)
    --end;  // not inside a character
  return value.substr(0, end) + "... (" + std::to_string(value.size()) + " bytes; --json shows them)";
}

void show_file(const InspectFlags& flags) {
  const app::FileContents contents = app::read_contents(flags.what, flags.shape.spec());
  if (flags.json) {
    nlohmann::json json = {{"file", flags.what}, {"bytes", contents.bytes}, {"kind", contents.kind}};
    for (const auto& [key, value] : contents.metadata) json["metadata"][key] = value;
    if (contents.steps) json["steps"] = to_json(*contents.steps);
    json["tensors"] = to_json(contents.tensors);
    return print_json(json);
  }
  std::cout << report::escape_controls(flags.what) << ": " << contents.kind << ", " << contents.bytes
            << " bytes\n";
  for (const auto& [key, value] : contents.metadata)
    std::cout << "  " << report::escape_controls(key) << " = " << report::escape_controls(beginning(value))
              << '\n';
  std::cout << '\n';
  if (contents.steps) {
    print_table(*contents.steps);
    std::cout << '\n';
  }
  print_table(contents.tensors);
}

void run(const InspectFlags& flags) {
  apply(flags);
  if (flags.graph || flags.dot || app::is_reference_network(flags.what))
    return show_graph(flags, *app::graph_of(flags.what, flags.shape.spec()));
  show_file(flags);
}

void add_inspect(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* command = add_command(app, "inspect", "Show what a file holds, or the graph of a model",
                                  "  ulp inspect model.int8.ulp\n  ulp inspect model.safetensors --graph\n"
                                  "  ulp inspect bert-folder\n"
                                  "  ulp inspect resnet20 --dot | dot -Tsvg > resnet20.svg\n",
                                  *flags);
  command
      ->add_option("what", flags->what,
                   "An engine, model or safetensors file, published weights, or a reference network's name")
      ->required();
  command->add_flag("--graph", flags->graph, "Show the captured graph of a model file");
  command->add_flag("--dot", flags->dot, "Show the graph in Graphviz's language");
  flags->shape.add_to(*command);
  command->callback([flags] { run(*flags); });
}

const Command kInspectCommand("inspect", add_inspect);

}  // namespace

}  // namespace ulp::cli
