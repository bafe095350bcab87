#include "ulp/prune/structured/removed_channels.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "ulp/graph/passes/pattern.h"

namespace ulp::prune {

using graph::Argument;
using graph::Node;
using graph::Value;

namespace {

class Finder {
 public:
  Finder(const Node& node, const RemovedConstants& removed) : node_(node), removed_(removed) {}

  std::vector<LostChannels> run() {
    if (!reads_cut()) return {};
    if (in_family(layer_rules(), node_)) {
      layer();
    } else if (in_family(sequence_rules(), node_)) {
      sequence();
    } else if (in_family(norm_rules(), node_)) {
      norm();
    } else if (in_family(reduce_rules(), node_)) {
      reduce();
    } else if (!in_family(elementwise_rules(), node_) && !in_family(piece_rules(), node_) &&
               !in_family(move_rules(), node_) && !in_family(view_rules(), node_)) {
      for (const Value* value : node_.reads()) {
        for (size_t d = 0; d < removed_.rank(value); ++d) add(value, d, true);
      }
    }
    return std::move(lost_);
  }

 private:
  /// Of other calls even the dimensions may be unknown.
  bool reads_cut() const {
    const std::vector<Value*> reads = node_.reads();
    return std::ranges::any_of(reads, [&](const Value* value) {
      for (size_t d = 0; d < removed_.rank(value); ++d) {
        if (removed_.cut(value, d)) return true;
      }
      return false;
    });
  }
  /// `zeros`: they matter even if they hold zeros.
  void add(const Value* value, size_t dim, bool zeros = false) {
    std::vector<int64_t> all;
    for (size_t i = 0; i < removed_.axis(value, dim).size(); ++i) all.push_back(static_cast<int64_t>(i));
    add(value, dim, std::move(all), zeros);
  }
  /// Those of the indices that are removed.
  void add(const Value* value, size_t dim, std::vector<int64_t> indices, bool zeros = false) {
    const Axis& axis = removed_.axis(value, dim);
    const at::Tensor numbers = removed_.along(value, dim);
    bool matters = zeros || !numbers.defined();
    std::erase_if(indices, [&](int64_t i) { return removed_.keeps(axis[static_cast<size_t>(i)]); });
    for (const int64_t i : indices) matters = matters || numbers[i].item<double>() != 0.0;
    if (matters && !indices.empty()) lost_.push_back({value, dim, std::move(indices)});
  }
  void add_last(const Argument& arg) {
    if (arg.is_value() && removed_.rank(arg.value) > 0) add(arg.value, removed_.rank(arg.value) - 1);
  }
  /// The sum over products of two dimensions: nothing is lost where one of them holds zeros.
  void contract(const Argument& a, size_t a_dim, const Argument& b, size_t b_dim) {
    if (!removed_.zero(a, a_dim) && !removed_.zero(b, b_dim)) add(a.value, a_dim);
  }

  void layer() {
    if (is_conv(node_) || is_transposed_conv(node_)) return convolution();
    if (node_.op().starts_with("aten::embedding")) return;
    const bool linear = node_.is("aten::linear"),
               added = node_.is("aten::addmm") || node_.is("aten::baddbmm");
    const Argument &a = node_.args.at(added ? 1 : 0), &b = node_.args.at(added ? 2 : 1);
    const size_t b_rank = removed_.rank(b.value), b_dim = linear ? 1 : b_rank == 1 ? 0 : b_rank - 2;
    contract(a, removed_.rank(a.value) - 1, b, b_dim);
  }

  /// Channels of which the whole group goes, with all that it makes, are not lost: those of depthwise layers.
  void convolution() {
    const Argument &x = node_.arg("input"), &weight = node_.arg("weight");
    const int64_t groups = graph::integer(node_.arg("groups")).value_or(1);
    if (groups == 1) return contract(x, 1, weight, is_transposed_conv(node_) ? 0 : 1);
    const Axis &in = removed_.axis(x.value, 1), &out = removed_.axis(node_.output(), 1);
    const size_t in_each = in.size() / static_cast<size_t>(groups),
                 out_each = out.size() / static_cast<size_t>(groups);
    std::vector<int64_t> read;
    for (size_t i = 0; i < in.size(); ++i) {
      const auto first = out.begin() + static_cast<int64_t>(i / in_each * out_each);
      const bool used = std::any_of(first, first + static_cast<int64_t>(out_each),
                                    [&](Position position) { return removed_.keeps(position); });
      if (used) read.push_back(static_cast<int64_t>(i));
    }
    add(x.value, 1, std::move(read));
  }

  void sequence() {
    if (node_.is("aten::scaled_dot_product_attention")) {
      const Argument &q = node_.arg("query"), &k = node_.arg("key");
      return contract(q, removed_.rank(q.value) - 1, k, removed_.rank(k.value) - 1);
    }
    add_last(node_.arg("input"));
    const Argument& states = node_.arg("hx");
    add_last(states);
    for (const Argument& state : states.items) add_last(state);
  }

  /// What mean and variance are measured over.
  void norm() {
    const Argument& x = node_.args.at(0);
    const size_t rank = removed_.rank(x.value);
    if (node_.is("aten::batch_norm") && !set_in_eval(node_.arg("training"))) return;
    size_t first = 2;  // of instance norm, and of batch norm that measures
    if (node_.is("aten::layer_norm"))
      first =
          rank - graph::integers(node_.arg("normalized_shape")).value_or(std::vector<int64_t>(rank)).size();
    if (node_.is("aten::group_norm") && !whole_groups(x.value)) first = 1;
    for (size_t d = first; d < rank; ++d) add(x.value, d, true);
  }
  bool whole_groups(const Value* x) const {
    const Axis& axis = removed_.axis(x, 1);
    const int64_t groups = graph::integer(node_.arg("num_groups")).value_or(1);
    const size_t each = axis.size() / static_cast<size_t>(groups);
    for (size_t i = 0; i < axis.size(); ++i) {
      if (removed_.keeps(axis[i]) != removed_.keeps(axis[i / each * each])) return false;
    }
    return true;
  }

  /// A dimension is lost if the result has none with its positions.
  void reduce() {
    const Value* x = node_.args.at(0).value;
    const auto count = [&](const Value* value, const Axis& axis) {
      size_t found = 0;
      for (size_t d = 0; d < removed_.rank(value); ++d) found += removed_.axis(value, d) == axis;
      return found;
    };
    for (size_t d = 0; d < removed_.rank(x); ++d) {
      const Axis& axis = removed_.axis(x, d);
      if (count(node_.output(), axis) < count(x, axis)) add(x, d, node_.is("aten::mean"));
    }
  }

  const Node& node_;
  const RemovedConstants& removed_;
  std::vector<LostChannels> lost_;
};

}  // namespace

std::vector<LostChannels> lost_channels(const Node& node, const RemovedConstants& removed) {
  return Finder(node, removed).run();
}

}  // namespace ulp::prune
