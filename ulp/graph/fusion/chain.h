// The one matcher of chains: which layer or sum takes which residual add and which activation into one step.
// Quantization places its observers by it, lowering makes its steps by it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ulp/base/activation.h"
#include "ulp/base/export.h"
#include "ulp/graph/graph.h"

namespace ulp::graph {

/// A compute node with what follows it into one step: a layer [-> add] [-> activation], or an add [->
/// activation]. Every value inside has one reader.
struct ULP_API Chain {
  Node* op = nullptr;          ///< a layer, or an add that no layer took
  Node* add = nullptr;         ///< the residual add behind a layer
  Node* activation = nullptr;  ///< the call behind that
  Activation kind = Activation::none;

  Node* last() const { return activation ? activation : add ? add : op; }
  Value* result() const { return last()->output(); }
  /// The operand that the residual add brings; null without one.
  Value* residual() const;
  std::string describe() const;  ///< "layer1.0.conv1 + add + relu"
};

/// A sum, an activation or a pooling that reads a chain's result and is no part of it.
struct ULP_API NearMiss {
  const Node* node = nullptr;
  const Node* op = nullptr;  ///< of the chain
  std::string reason;
  std::string describe() const;  ///< "aten::relu 'relu' not fused into aten::conv2d 'conv2d' in stem: ..."
};

/// What a room can fuse. The matcher asks it about single nodes and decides about chains.
struct FusionPolicy {
  /// Layers: they take a residual add and an activation.
  std::function<bool(const Node&)> is_layer;
  /// Why the room cannot take this plain sum (see sum_obstacle), alone or behind a layer; empty: it can. May
  /// be null.
  std::function<std::string(const Node&)> refuses_add;
  /// A chain of this op may end in the activation.
  std::function<bool(const Node& op, Activation)> takes_activation;
};

struct Fusion {
  std::vector<Chain> chains;  ///< in order of execution of their ops
  std::vector<NearMiss> near_misses;
};

/// Finds the chains of a canonical graph. An add between two layers belongs to the first in order of
/// execution whose result nobody else reads; the step runs where the add stands, so that both operands are
/// ready.
ULP_API Fusion find_chains(const Graph& graph, const FusionPolicy& policy);

/// Why the call is no plain sum: aten::add.Tensor of two tensors of one shape with alpha 1. Empty when it is.
ULP_API std::string sum_obstacle(const Node& node);

}  // namespace ulp::graph
