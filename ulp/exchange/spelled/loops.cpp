// What loops of users make: cells of recurrent layers, and values that are written into tensors made before.
#include <array>

#include "ulp/exchange/arguments.h"
#include "ulp/exchange/spelled/spelled.h"

namespace ulp::exchange::spelled {

namespace {

using V = Formula::V;
using graph::Argument;

/// A cell's gates, side by side.
class Cell {
 public:
  explicit Cell(Formula& f) : f_(f) {}

  V input() { return f_.tensor("input"); }
  /// A state of which there is one.
  V state() { return f_.tensor("hx"); }
  /// x W^T + b.
  V linear(V x, const char* weight, const char* bias) {
    V w = f_.spell().tensor(weight);
    Speller::Sizes sizes = x->meta->sizes;
    sizes.back() = w->meta->sizes.at(0);
    return f_.spell().call("aten::linear", {x, w, f_.node().arg(bias)}, f_.type(), sizes);
  }
  V from_input() { return linear(input(), "w_ih", "b_ih"); }
  V from_state(V h) { return linear(h, "w_hh", "b_hh"); }
  V gate(V all, int64_t i, const graph::Value& h) {
    const int64_t size = fixed_size(f_.node(), h, 1);
    return f_.slice(all, 1, i * size, size);
  }
  V sigmoid(V x) { return f_.map("aten::sigmoid", x); }
  V tanh(V x) { return f_.map("aten::tanh", x); }

 private:
  Formula& f_;
};

/// Gates i f g o: c' = f c + i g, h' = o tanh(c').
void lstm_cell(Formula& f) {
  const Argument& states = f.node().arg("hx");
  if (states.kind != Argument::Kind::list || states.items.size() != 2) return;
  V h = states.items[0].value, c = states.items[1].value;
  if (h == nullptr || c == nullptr || !h->meta || !c->meta) return;
  Cell cell(f);
  V all = f.add(cell.from_input(), cell.from_state(h));
  V fresh = f.mul(cell.sigmoid(cell.gate(all, 0, *h)), cell.tanh(cell.gate(all, 2, *h)));
  V next = f.add(f.mul(cell.sigmoid(cell.gate(all, 1, *h)), c), fresh);
  V out = f.mul(cell.sigmoid(cell.gate(all, 3, *h)), cell.tanh(next));
  graph::Graph& graph = f.spell().graph();
  graph.replace_uses(f.node().output(1), next);
  f.result(out);
}

/// Gates r z n: n = tanh(in_n + r hidden_n), h' = n + z (h - n).
void gru_cell(Formula& f) {
  Cell cell(f);
  V h = cell.state(), in = cell.from_input(), hidden = cell.from_state(h);
  const auto opened = [&](int64_t i) {
    return cell.sigmoid(f.add(cell.gate(in, i, *h), cell.gate(hidden, i, *h)));
  };
  V reset = opened(0), update = opened(1);
  V fresh = cell.tanh(f.add(cell.gate(in, 2, *h), f.mul(reset, cell.gate(hidden, 2, *h))));
  f.result(f.add(fresh, f.mul(update, f.sub(h, fresh))));
}

void rnn_cell(Formula& f) {
  Cell cell(f);
  V sum = f.add(cell.from_input(), cell.from_state(cell.state()));
  f.result(f.map(f.node().is("aten::rnn_tanh_cell") ? "aten::tanh" : "aten::relu", sum));
}

/// The source in the other's sizes and type.
void copy(Formula& f) {
  V made = f.tensor("src");
  const Speller::Sizes& sizes = f.node().output()->meta->sizes;
  if (made->meta->sizes == sizes) return f.result(f.map("aten::alias", made));
  std::vector<Argument> list;
  for (const graph::SizeExpr& size : sizes)
    list.push_back(size.constant() ? Argument(c10::IValue(size.offset)) : Argument(size));
  f.result(f.spell().call("aten::expand", {made, Argument::list(std::move(list))}, f.type(), sizes));
}

}  // namespace

SpelledTable spelled_loops() {
  static constexpr SpelledRow kTable[] = {{"aten::lstm_cell", lstm_cell},
                                          {"aten::gru_cell", gru_cell},
                                          {"aten::rnn_tanh_cell", rnn_cell},
                                          {"aten::rnn_relu_cell", rnn_cell},
                                          {"aten::copy", copy}};
  return kTable;
}

}  // namespace ulp::exchange::spelled
