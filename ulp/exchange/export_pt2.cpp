#include "ulp/exchange/export_pt2.h"

#include <set>

#include "ulp/base/atomic_file.h"
#include "ulp/exchange/name_sizes.h"
#include "ulp/exchange/pt2/plain_calls.h"
#include "ulp/exchange/pt2/program_writer.h"
#include "ulp/exchange/pt2/sample_inputs.h"
#include "ulp/exchange/pt2/stored_zip.h"
#include "ulp/exchange/write_in_blocks.h"
#include "ulp/graph/conditions.h"
#include "ulp/graph/graph_module.h"
#include "ulp/graph/passes/fold_masks.h"
#include "ulp/graph/passes/pass.h"

namespace ulp::exchange {

namespace {

using graph::Graph;
using graph::Node;

/// Constants that no call reads any more. Parameters and buffers stay: they are the model's, read or not.
void drop_unread_constants(Graph& graph) {
  graph.remove_dead();  // attributes without a reader, too
  std::set<std::string> read;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::attribute) read.insert(node->target());
  }
  std::vector<std::string> unread;
  for (const auto& [name, attribute] : graph.attributes()) {
    if (attribute.kind == graph::Attribute::Kind::constant && !read.contains(name)) unread.push_back(name);
  }
  for (const std::string& name : unread) graph.erase_attribute(name);
}

/// The graph of eval mode in PyTorch's own calls.
std::shared_ptr<Graph> plain_graph(const graph::GraphModule& model) {
  graph::check_conditions(model.graph(), "exchange.export_pt2");
  const std::shared_ptr<Graph> graph = model.graph().clone();
  graph::fold_masks(*graph);
  graph::strip_training(*graph);
  name_sizes(*graph);
  pt2::spell_out(*graph);
  drop_unread_constants(*graph);
  return graph;
}

/// All that is written, so that a refusal comes before a byte.
class Pt2Contents {
 public:
  Pt2Contents(const graph::GraphModule& model, const Pt2Options& options) : options_(options) {
    const std::shared_ptr<Graph> graph = plain_graph(model);
    pt2::ProgramWriter writer(*graph);
    program_ = writer.write(weights_, constants_).dump();
    samples_ = pt2::pickled_samples(writer.samples());
  }

  void write(const WireWriter::Sink& sink) const {
    pt2::StoredZip zip(sink, "model");
    zip.add("archive_format", "pt2");
    zip.add("archive_version", "0");
    zip.add(".data/version", "6\n");  // of PyTorch's zip files
    zip.add("byteorder", "little");
    weights_.write(zip, "model_weights_config.json");
    constants_.write(zip, "model_constants_config.json");
    zip.add("models/model.json", program_);
    zip.add("data/sample_inputs/model.pt", samples_);
    for (const auto& [name, text] : options_.metadata) zip.add("extra/" + name, text);
    zip.finish();
  }

 private:
  const Pt2Options& options_;
  pt2::TensorFolder weights_{"data/weights/", "weight_"}, constants_{"data/constants/", "tensor_"};
  std::string program_, samples_;
};

}  // namespace

std::string export_pt2(const graph::GraphModule& model, const Pt2Options& options) {
  const Pt2Contents contents(model, options);
  std::string bytes;
  contents.write(
      [&](const void* data, size_t count) { bytes.append(static_cast<const char*>(data), count); });
  return bytes;
}

void export_pt2(const graph::GraphModule& model, const std::filesystem::path& path,
                const Pt2Options& options) {
  const Pt2Contents contents(model, options);
  AtomicFile file(path);
  write_in_blocks(file, [&](const WireWriter::Sink& sink) { contents.write(sink); });
  file.commit();
}

}  // namespace ulp::exchange
