// What every way of preparing a model starts from. Internal.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ulp/quant/static/annotation.h"

namespace ulp::quant {

/// What the form is for. In a graph that trains, layers keep parameters of their own; for conversion alone,
/// batch norms that fold into nothing and transposed convolutions are ordinary convolutions.
enum class Purpose : uint8_t { conversion, training };

/// A captured graph as it will infer (canonical, batch norms folded, without training-only nodes), and which
/// of its ops are quantized where. Values and nodes keep their names.
struct InferenceForm {
  std::shared_ptr<graph::Graph> graph;
  Annotation placement;
  std::set<std::string> untrained = {};  ///< of Purpose::training: nodes that eval mode alone calls
};

/// A copy of the captured graph as it will infer; `near_misses` receives what could not be folded and why.
std::shared_ptr<graph::Graph> inference_graph(const graph::Graph& captured,
                                              std::vector<std::string>* near_misses = nullptr);

/// The captured graph stays as it is. Throws ulp::Error for an invalid recipe, a pattern that matches
/// nothing, what the recipe's backend cannot run (naming the layer), or a model with nothing to quantize.
InferenceForm inference_form(const graph::Graph& captured, const Recipe& recipe, Purpose purpose);

/// The layer that computes the value, for messages: the one in whose chain it ends, if any.
std::string label_of(const graph::Value& value, const Annotation& placement);

}  // namespace ulp::quant
