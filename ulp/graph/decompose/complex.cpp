#include "ulp/graph/decompose/complex.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "ulp/graph/decompose/table.h"
#include "ulp/graph/describe.h"
#include "ulp/graph/formula.h"
#include "ulp/graph/mutated_buffers.h"
#include "ulp/graph/passes/pattern.h"

namespace ulp::graph {

namespace {

using V = Formula::V;

/// The imaginary part is null where it is 0.
struct Parts {
  V real = nullptr, imaginary = nullptr;
};

bool is_complex(const Value* value) {
  return value->meta && at::isComplexType(value->meta->dtype);
}

/// Moves of elements and sums, of each part by itself.
constexpr std::string_view kLinear[] = {
    "aten::alias",         "aten::cat",       "aten::clone",   "aten::constant_pad_nd",
    "aten::contiguous",    "aten::detach",    "aten::expand",  "aten::flatten",
    "aten::flip",          "aten::index",     "aten::mean",    "aten::movedim",
    "aten::narrow",        "aten::neg",       "aten::permute", "aten::repeat",
    "aten::reshape",       "aten::roll",      "aten::select",  "aten::slice",
    "aten::slice_scatter", "aten::squeeze",   "aten::stack",   "aten::sum",
    "aten::transpose",     "aten::unsqueeze", "aten::view"};

/// Of these, those whose real tensors have an imaginary part of zeros.
constexpr std::string_view kJoins[] = {"aten::cat", "aten::slice_scatter", "aten::stack"};

/// Products, of which each part of the one meets each of the other.
constexpr std::string_view kProducts[] = {"aten::bmm", "aten::matmul", "aten::mm", "aten::mul.Tensor"};

/// As at::native::fft_norm_mode counts them.
double norm_factor(int64_t mode, int64_t count) {
  const auto n = static_cast<double>(count);
  return mode == 0 ? 1 : mode == 1 ? 1 / std::sqrt(n) : 1 / n;
}

constexpr int64_t kMostPoints = 2048;  // of a transform: it is a product with a stored matrix

/// cos or sin of 2 pi row column / points.
at::Tensor waves(int64_t rows, int64_t columns, int64_t points, bool cosine) {
  const at::Tensor turns = (torch::arange(rows).unsqueeze(1) * torch::arange(columns)).remainder(points);
  const at::Tensor angle = turns.to(at::kDouble) * (2 * std::numbers::pi / static_cast<double>(points));
  return cosine ? angle.cos() : angle.sin();
}

class Splitter {
 public:
  explicit Splitter(Graph& graph) : graph_(graph), written_(graph) {}

  /// Throws CannotWrite.
  void run(Node& node) {
    Formula f(graph_, node, node.name());
    node_ = &node;
    f_ = &f;
    if (node.is("aten::_fft_r2c")) return keep(forward_of_real());
    if (node.is("aten::_fft_c2c"))
      return keep(transforms(parts(0), f.integers("dim"), f.flag("forward"), norm()));
    if (node.is("aten::_fft_c2r")) return give(backward_to_real());
    if (node.is("aten::view_as_real")) return give(together(parts(0)));
    if (node.is("aten::view_as_complex")) return keep(apart(f.operand("self")));
    if (node.is("aten::real")) return give(parts(0).real);
    if (node.is("aten::imag")) return give(imaginary(parts(0)));
    if (node.is("aten::abs")) return give(length(parts(0)));
    if (node.is("aten::angle")) return give(f.both("aten::atan2", imaginary(parts(0)), parts(0).real));
    if (node.is("aten::complex")) return keep({f.operand("real"), f.operand("imag")});
    if (node.is("aten::polar")) return keep(polar());
    for (const char* op : {"aten::conj", "aten::_conj", "aten::conj_physical", "aten::_conj_physical"}) {
      if (node.is(op)) return keep(conjugate(parts(0)));
    }
    for (const char* op : {"aten::resolve_conj", "aten::resolve_neg", "aten::to"}) {
      if (node.is(op) && is_complex(node.output())) return keep(as_parts_of_result(parts(0)));
    }
    if (is_any(node, kProducts)) return keep(product());
    for (const char* op : {"aten::add", "aten::sub"}) {
      if (node.is(op)) return keep(sum(op));
    }
    if (node.is("aten::mul") || node.is("aten::div")) return keep(scaled());
    if (is_any(node, kLinear)) return keep(part_by_part());
    throw CannotWrite{"expected an op of complex numbers that is known"};
  }

 private:
  /// Of an argument; a real one has no imaginary part.
  Parts parts(size_t i) { return parts(node_->args.at(i)); }
  Parts parts(const Argument& argument) {
    if (!argument.is_value()) throw CannotWrite{"expected tensors"};
    V value = argument.value;
    if (written_.holds(value)) throw CannotWrite{"expected '" + value->name + "' not to be written"};
    if (const at::Tensor stored = graph_.attribute_tensor(value); stored.defined() && stored.is_complex()) {
      const at::Tensor dense = stored.detach().resolve_conj();
      return {f_->constant(at::real(dense).clone(), "real"), f_->constant(at::imag(dense).clone(), "imag")};
    }
    if (const auto known = parts_.find(value); known != parts_.end()) return known->second;
    if (!value->meta || is_complex(value)) throw CannotWrite{"expected parts of '" + value->name + "'"};
    return {value, nullptr};
  }
  void keep(const Parts& made) { parts_[node_->output()] = made; }
  void give(V made) { f_->result(0, made); }

  V zero_like(V x) {
    return f_->expand(f_->constant(torch::zeros({1}, x->meta->dtype), "zero"), x->meta->sizes);
  }
  V imaginary(const Parts& x) { return x.imaginary != nullptr ? x.imaginary : zero_like(x.real); }
  Parts conjugate(const Parts& x) {
    return {x.real, x.imaginary == nullptr ? nullptr : f_->neg(x.imaginary)};
  }
  int64_t norm() { return f_->integer("normalization"); }

  Formula::Sizes sizes() { return node_->output()->meta->sizes; }
  at::ScalarType real_type() { return c10::toRealValueType(node_->output()->meta->dtype); }

  V together(const Parts& x) {
    Formula::Sizes one = x.real->meta->sizes;
    one.push_back(fixed(1));
    return f_->cat({f_->view(x.real, one), f_->view(imaginary(x), one)}, std::ssize(one) - 1);
  }
  Parts apart(V x) {
    const int64_t last = std::ssize(x->meta->sizes) - 1;
    return {f_->squeeze(f_->slice(x, last, 0, 1), {last}), f_->squeeze(f_->slice(x, last, 1, 1), {last})};
  }
  Parts polar() {
    V size = f_->operand("abs"), angle = f_->operand("angle");
    return {f_->mul(size, f_->map("aten::cos", angle)), f_->mul(size, f_->map("aten::sin", angle))};
  }
  V length(const Parts& x) {
    return x.imaginary == nullptr ? f_->abs(x.real) : hypotenuse(*f_, x.real, x.imaginary);
  }
  /// In the type of the parts of the node's result: integers become floats.
  Parts as_parts_of_result(const Parts& x) {
    return {f_->to(x.real, real_type()), x.imaginary == nullptr ? nullptr : f_->to(x.imaginary, real_type())};
  }

  /// The node on other tensors.
  V again(std::vector<Argument> args) {
    return f_->call(node_->target().c_str(), std::move(args), real_type(), sizes());
  }
  Parts part_by_part() {
    const bool joins = is_any(*node_, kJoins), pads = node_->is("aten::constant_pad_nd");
    if (node_->schema().argumentIndexWithName("dtype") && !node_->arg("dtype").is_none())
      throw CannotWrite{"expected no type"};
    if (pads && !graph::number(node_->arg("value"))) throw CannotWrite{"expected a border of a real number"};
    Parts made;
    for (const bool first : {true, false}) {
      std::vector<Argument> args = node_->args;
      const auto of = [&](Argument& arg) {
        if (!arg.is_value() || (!joins && !is_complex(arg.value) && !parts_.contains(arg.value))) return;
        const Parts own = as_parts_of_result(parts(arg));
        arg = first ? own.real : imaginary(own);
      };
      if (pads && !first) args.at(2) = c10::IValue(0.0);
      for (Argument& arg : args) {
        of(arg);
        for (Argument& item : arg.items) of(item);
      }
      (first ? made.real : made.imaginary) = again(std::move(args));
    }
    return made;
  }
  Parts product() {
    const Parts a = parts(0), b = parts(1);
    const auto of = [&](V x, V y) { return again({x, y}); };
    if (a.imaginary == nullptr && b.imaginary == nullptr) return {of(a.real, b.real), nullptr};
    if (b.imaginary == nullptr) return {of(a.real, b.real), of(a.imaginary, b.real)};
    if (a.imaginary == nullptr) return {of(a.real, b.real), of(a.real, b.imaginary)};
    return {f_->sub(of(a.real, b.real), of(a.imaginary, b.imaginary)),
            f_->add(of(a.real, b.imaginary), of(a.imaginary, b.real))};
  }
  Parts sum(const std::string& op) {
    if (f_->number("alpha") != 1) throw CannotWrite{"expected an alpha of 1"};
    const Parts a = as_parts_of_result(parts(0)), b = as_parts_of_result(parts(1));
    const auto of = [&](V x, V y) { return f_->both((op + ".Tensor").c_str(), x, y); };
    return {of(a.real, b.real), of(imaginary(a), imaginary(b))};
  }
  /// By a real number, or divided by real numbers.
  Parts scaled() {
    const Parts a = as_parts_of_result(parts(0));
    const Argument& other = node_->args.at(1);
    if (other.is_value() && (is_complex(other.value) || parts(1).imaginary != nullptr))
      throw CannotWrite{"expected a real divisor"};
    if (!other.is_value() && !graph::number(other)) throw CannotWrite{"expected a real factor"};
    if (node_->is("aten::div") && node_->args.size() > 2) throw CannotWrite{"expected no rounding"};
    const auto of = [&](V x) { return again({x, other}); };
    return {of(a.real), of(imaginary(a))};
  }

  /// x times the matrix [out, in], along a dimension.
  V along(V x, int64_t dim, const at::Tensor& matrix, const char* name) {
    const int64_t last = std::ssize(x->meta->sizes) - 1;
    V rows = dim == last ? x : f_->transpose(x, dim, last);
    Formula::Sizes made = rows->meta->sizes;
    made.back() = fixed(matrix.size(0));
    V by = f_->constant(matrix.to(x->meta->dtype), name);
    V y = f_->call("aten::linear", {rows, by}, x->meta->dtype, made);
    return dim == last ? y : f_->transpose(y, dim, last);
  }
  int64_t points_of(V x, int64_t dim) {
    const int64_t points = Formula::size(x, dim);
    if (points < 1 || points > kMostPoints)
      throw CannotWrite{"expected a transform of at most " + std::to_string(kMostPoints) + " points"};
    return points;
  }
  std::vector<int64_t> counted(std::vector<int64_t> dims, V x) {
    for (int64_t& dim : dims) dim += dim < 0 ? std::ssize(x->meta->sizes) : 0;
    return dims;
  }

  /// sum of x e^(-+ i 2 pi k t / n) along each dimension.
  Parts transforms(Parts x, std::vector<int64_t> dims, bool forward, int64_t mode) {
    for (const int64_t dim : counted(std::move(dims), x.real)) {
      const int64_t points = points_of(x.real, dim);
      const double factor = norm_factor(mode, points);
      const at::Tensor cosine = waves(points, points, points, true) * factor,
                       sine = waves(points, points, points, false) * (forward ? -factor : factor);
      const auto by = [&](V part, const at::Tensor& matrix) { return along(part, dim, matrix, "waves"); };
      V real = by(x.real, cosine), imaginary = by(x.real, sine);
      if (x.imaginary != nullptr) {
        real = f_->sub(real, by(x.imaginary, sine));
        imaginary = f_->add(imaginary, by(x.imaginary, cosine));
      }
      x = {real, imaginary};
    }
    return x;
  }

  /// The last dimension's first half, or all of it, and then the others.
  Parts forward_of_real() {
    V x = f_->operand("self");
    std::vector<int64_t> dims = counted(f_->integers("dim"), x);
    if (dims.empty()) throw CannotWrite{"expected dimensions"};
    const int64_t last = dims.back(), points = points_of(x, last);
    dims.pop_back();
    const int64_t rows = f_->flag("onesided") ? points / 2 + 1 : points;
    const double factor = norm_factor(norm(), points);
    const Parts half = {along(x, last, waves(rows, points, points, true) * factor, "waves"),
                        along(x, last, waves(rows, points, points, false) * -factor, "waves")};
    return transforms(half, dims, true, norm());
  }

  /// Of each frequency but the first, and the middle one, there is another one with the conjugate.
  V backward_to_real() {
    Parts x = parts(0);
    std::vector<int64_t> dims = counted(f_->integers("dim"), x.real);
    if (dims.empty()) throw CannotWrite{"expected dimensions"};
    const int64_t last = dims.back(), points = f_->integer("last_dim_size");
    dims.pop_back();
    x = transforms(x, dims, false, norm());
    const int64_t rows = points_of(x.real, last);
    if (points < 1 || points > kMostPoints || rows != points / 2 + 1)
      throw CannotWrite{"expected half of the frequencies"};
    at::Tensor times = torch::full({rows}, 2, at::kDouble);
    times[0] = 1;
    if (points % 2 == 0) times[rows - 1] = 1;
    times *= norm_factor(norm(), points);
    V real = along(x.real, last, waves(points, rows, points, true) * times, "waves");
    if (x.imaginary == nullptr) return real;
    return f_->sub(real, along(x.imaginary, last, waves(points, rows, points, false) * times, "waves"));
  }

  Graph& graph_;
  const WrittenState written_;
  Node* node_ = nullptr;
  Formula* f_ = nullptr;
  std::map<const Value*, Parts> parts_;
};

/// Whether a call reads or makes complex numbers.
bool touches_complex(const Node& node) {
  const auto is = [](const auto& value) { return is_complex(&*value); };
  return std::ranges::any_of(node.outputs(), is) || std::ranges::any_of(node.reads(), is);
}

}  // namespace

PassReport split_complex(Graph& graph) {
  PassReport report{"split_complex", {}, {}};
  std::vector<Node*> calls;
  for (const auto& node : graph.nodes()) {
    if (node->kind() == Node::Kind::call && touches_complex(*node)) calls.push_back(node.get());
  }
  Splitter splitter(graph);
  for (Node* node : calls) {
    const std::string title = label(*node) + " (" + node->target() + ")";
    try {
      if (node->autocast && node->autocast->enabled)
        throw CannotWrite{"it is under autocast of the model's own"};
      splitter.run(*node);
      report.changes.push_back(title + " written in real parts");
    } catch (const CannotWrite& error) {
      report.near_misses.push_back(title + " not written in real parts: " + error.reason);
    }
  }
  if (!calls.empty()) graph.remove_dead();
  return report;
}

}  // namespace ulp::graph
