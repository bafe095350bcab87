// LSTM and GRU layers over sequences of a fixed length, step by step.
#include <array>

#include "ulp/exchange/arguments.h"
#include "ulp/exchange/spelled/spelled.h"

namespace ulp::exchange::spelled {

namespace {

using V = Formula::V;
using graph::Argument;

constexpr int64_t kMostSteps = 64;  // in a file; each one is a dozen of operators

/// One layer in one direction.
class Recurrent {
 public:
  Recurrent(Formula& f, bool cell) : f_(f), cell_(cell) {
    const graph::Node& node = f.node();
    batch_first_ = bool_arg(node, "batch_first");
    biases_ = bool_arg(node, "has_biases");
    for (const Argument& one : node.arg("params").items) params_.push_back(one.value);
    directions_ = bool_arg(node, "bidirectional") ? 2 : 1;
    layers_ = int_arg(node, "num_layers");
  }

  /// A projection has one parameter more.
  bool is_known() const {
    const auto parts = static_cast<size_t>(layers_ * directions_) * (biases_ ? 4 : 2);
    V x = f_.tensor("input");
    return params_.size() == parts && x->meta->sizes.size() == 3 && x->meta->sizes[time()].constant() &&
           x->meta->sizes[time()].offset <= kMostSteps && !bool_arg(f_.node(), "train");
  }

  void write() {
    V x = f_.tensor("input");
    for (int64_t layer = 0; layer < layers_; ++layer) {
      V forward = run(x, layer * directions_, /*backward=*/false);
      x = directions_ == 1 ? forward
                           : joined({forward, run(x, layer * directions_ + 1, /*backward=*/true)}, 2);
    }
    graph::Graph& graph = f_.spell().graph();
    graph.replace_uses(f_.node().output(0), x);
    const std::array ends = {&hidden_, &cells_};
    for (size_t i = 0; i < ends.size() && i + 1 < f_.node().outputs().size(); ++i) {
      V result = f_.node().output(i + 1);
      if (!graph.users(result).empty()) graph.replace_uses(result, joined(*ends[i], 0));
    }
    graph.erase(&f_.node());
  }

 private:
  size_t time() const { return batch_first_ ? 1 : 0; }

  V joined(const std::vector<V>& parts, int64_t dim) {
    if (parts.size() == 1) return parts[0];
    std::vector<Argument> list(parts.begin(), parts.end());
    Speller::Sizes sizes = parts[0]->meta->sizes;
    sizes.at(static_cast<size_t>(dim)).offset *= std::ssize(parts);
    return f_.spell().call("aten::cat", {Argument::list(std::move(list)), c10::IValue(dim)}, f_.type(),
                           sizes);
  }

  /// x W^T + b with the part-th of the direction's weights.
  V linear(V x, int64_t direction, size_t part) {
    const size_t first = static_cast<size_t>(direction) * (biases_ ? 4 : 2);
    V weight = params_.at(first + part);
    const at::Tensor stored = f_.spell().graph().attribute_tensor(weight);
    if (!stored.defined()) refuse(f_.node(), "expected parameters that are not computed");
    Speller::Sizes sizes = x->meta->sizes;
    sizes.back() = fixed(stored.size(0));
    std::vector<Argument> args = {x, weight};
    if (biases_) args.emplace_back(params_.at(first + 2 + part));
    return f_.spell().call("aten::linear", std::move(args), f_.type(), sizes);
  }

  /// One of a dimension, which goes.
  V picked(V x, size_t dim, int64_t index) {
    Speller::Sizes sizes = x->meta->sizes;
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(dim));
    return f_.spell().call("aten::select.int",
                           {x, c10::IValue(static_cast<int64_t>(dim)), c10::IValue(index)}, x->meta->dtype,
                           sizes);
  }

  V gate(V all, int64_t i, int64_t size) { return f_.slice(all, 1, i * size, size); }
  V sigmoid(V x) { return f_.map("aten::sigmoid", x); }
  V tanh(V x) { return f_.map("aten::tanh", x); }

  /// Gates r z n: n = tanh(in_n + r hidden_n), h' = n + z (h - n).
  V gru_step(V in, V hidden, V h, int64_t size) {
    const auto opened = [&](int64_t i) { return sigmoid(f_.add(gate(in, i, size), gate(hidden, i, size))); };
    V reset = opened(0), update = opened(1);
    V fresh = tanh(f_.add(gate(in, 2, size), f_.mul(reset, gate(hidden, 2, size))));
    return f_.add(fresh, f_.mul(update, f_.sub(h, fresh)));
  }

  /// Gates i f g o: c' = f c + i g, h' = o tanh(c').
  V lstm_step(V in, V hidden, V& c, int64_t size) {
    V all = f_.add(in, hidden);
    V kept = f_.mul(sigmoid(gate(all, 1, size)), c),
      fresh = f_.mul(sigmoid(gate(all, 0, size)), tanh(gate(all, 2, size)));
    c = f_.add(kept, fresh);
    return f_.mul(sigmoid(gate(all, 3, size)), tanh(c));
  }

  /// The first state of a direction: [N, H] of [layers directions, N, H].
  V first_state(size_t which, int64_t direction) {
    const Argument& given = f_.node().arg("hx");
    V state = given.is_value() ? given.value : given.items.at(which).value;
    if (const at::Tensor stored = f_.spell().graph().attribute_tensor(state); stored.defined())
      return f_.constant(stored.detach().select(0, direction), "state");
    if (!state->meta) refuse(f_.node(), "expected a state of known sizes");
    return picked(state, 0, direction);
  }

  V run(V x, int64_t direction, bool backward) {
    const size_t time = this->time();
    const int64_t steps = x->meta->sizes[time].offset;
    V h = first_state(0, direction), c = cell_ ? first_state(1, direction) : nullptr;
    const int64_t size = fixed_size(f_.node(), *h, 1);
    V all = linear(x, direction, 0);
    std::vector<V> made(static_cast<size_t>(steps));
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t t = backward ? steps - 1 - i : i;
      V in = picked(all, time, t), hidden = linear(h, direction, 1);
      h = cell_ ? lstm_step(in, hidden, c, size) : gru_step(in, hidden, h, size);
      made[static_cast<size_t>(t)] = f_.unsqueeze(h, static_cast<int64_t>(time));
    }
    hidden_.push_back(f_.unsqueeze(h, 0));
    if (cell_) cells_.push_back(f_.unsqueeze(c, 0));
    return joined(made, static_cast<int64_t>(time));
  }

  Formula& f_;
  bool cell_, batch_first_ = false, biases_ = true;
  int64_t directions_ = 1, layers_ = 1;
  std::vector<V> params_;
  std::vector<V> hidden_, cells_;  // the last states of each direction
};

void recurrent(Formula& f) {
  Recurrent layer(f, f.node().is("aten::lstm"));
  if (layer.is_known()) layer.write();
}

}  // namespace

SpelledTable spelled_recurrent() {
  static constexpr SpelledRow kTable[] = {{"aten::lstm.input", recurrent}, {"aten::gru.input", recurrent}};
  return kTable;
}

}  // namespace ulp::exchange::spelled
