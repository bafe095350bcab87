// From a graph to the plan of a training step: values of the graph become matrices, and each op gives instructions and a
// rule for its gradients; internal to the room.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ulp/base/error.h"
#include "ulp/graph/graph.h"
#include "ulp/train/compile/loss_function.h"
#include "ulp/train/compile/plan.h"

namespace ulp::train::compiled {

inline constexpr const char* kCompileWhere = "train.compile";

/// A tensor of the graph that the plan reads.
struct OutsideTensor {
  int matrix = -1;
  std::string name;
  at::Tensor tensor;
  std::vector<int64_t> sizes;  ///< when the plan was made
  bool of_optimizer = false;   ///< a parameter that the optimizer has
  bool requires_grad = false;  ///< when the plan was made
  int gradient = -1;           ///< the matrix of its gradient; -1: it has none
  bool channels_last = false;  ///< weights of a convolution in that order of their numbers
};

/// Whether LibTorch would call something with a parameter's gradient, which a plan does not.
bool has_gradient_hooks(const at::Tensor& parameter);

/// An integer input whose numbers pick columns.
struct IndexBound {
  int input = -1;  ///< kTargets: the targets
  int64_t classes = 0;
  std::string name;  ///< of the node
  RowCount rows;
};

/// An input of the graph.
struct StepInput {
  std::string name;
  bool integers = false;
  int matrix = -1;  ///< of floats
  int64_t batch_dim = 0;
  std::vector<graph::SizeExpr> sizes;
};

/// A buffer that counts batches.
struct BatchCounter {
  std::string name;
  at::Tensor tensor;
  int64_t step = 1;
};

/// A number that follows the batch and has a bound: rows of which batch norm needs two, or what is counted.
struct BoundedRows {
  std::string name;  ///< of the node
  RowCount rows;
};

/// Images that lie channels-last.
struct ImageSize {
  int64_t height = 1, width = 1;
};

/// A parameter under a mask of the graph, and the tensor that holds what is kept of it.
struct MaskedParameter {
  std::string mask;  ///< the name of its bits in the graph
  at::Tensor bits;   ///< when the plan was made
  at::Tensor kept;
  int matrix = -1;  ///< of `kept`
};

/// What the builder makes.
struct BuiltStep {
  BatchRange batch_range;
  StepPlan plan;
  std::vector<StepInput> inputs;
  std::vector<OutsideTensor> outside;
  std::vector<IndexBound> bounds;
  std::vector<BatchCounter> counters;
  std::vector<BoundedRows> least_rows;  ///< two or more
  std::vector<BoundedRows> counted;     ///< true ones that are counted in floats: at most 2^24
  std::vector<MaskedParameter> masks;
  int result = -1;                           ///< the graph's; -1: it is no matrix of floats
  std::vector<graph::SizeExpr> sizes;        ///< of the result
  std::vector<graph::SizeExpr> class_sizes;  ///< of targets that are classes
  int targets = -1;                          ///< the matrix of the loss's targets; -1: classes or none
};

class Builder {
 public:
  /// `trained`: which parameters have gradients. `draws`: whether dropout is taken.
  /// `word_numbers`: products round their sides to bf16, so many in a word; 0: they do not.
  Builder(const graph::Graph& graph, bool training, bool draws, int64_t word_numbers,
          std::function<bool(const at::Tensor&)> trained)
      : graph_(graph),
        training_(training),
        draws_(draws),
        word_numbers_(word_numbers),
        trained_(std::move(trained)) {}

  /// The whole step; throws Error naming the node that cannot be compiled.
  BuiltStep build(const LossFunction& loss);

  // For the rules of ops.
  const graph::Graph& graph() const { return graph_; }
  bool training() const { return training_; }
  bool draws() const { return draws_; }
  /// Another one for each dropout.
  int64_t next_draw() { return draw_++; }
  /// Refuses a node: "... the uncompiled step takes it".
  template <typename... Parts>
  [[noreturn]] void refuse(const graph::Node& node, const Parts&... why) const;

  /// The row-major matrix of an argument; refuses one that is none.
  int matrix(const graph::Node& node, std::string_view argument);
  int matrix(const graph::Node& node, const graph::Argument& argument);
  /// The same in rows of the arena: a parameter or buffer is copied.
  int padded(const graph::Node& node, std::string_view argument);
  int padded(int matrix);
  /// The same with the sizes of `to`, which may be more: rows, columns or all numbers are repeated.
  int broadcast(const graph::Node& node, std::string_view argument, const graph::Value& to);
  // Images: a matrix has a row for each pixel where image_of() knows it, and is row-major else.
  const ImageSize* image_of(int matrix) const;
  /// Whether the argument lies as images.
  bool lies_as_images(const graph::Node& node, const graph::Argument& argument) {
    return image_of(found_matrix(node, argument)) != nullptr;
  }
  /// The images of an argument, a pixel in a row; refuses other dimensions than [N, C, H, W].
  int pixels(const graph::Node& node, std::string_view argument);
  int pixels(const graph::Node& node, const graph::Argument& argument);
  /// The argument in rows of the arena, in the order that it has.
  int stored(const graph::Node& node, std::string_view argument);
  int stored(const graph::Node& node, const graph::Argument& argument);
  /// The argument where it is, in the order that it has.
  int in_memory(const graph::Node& node, std::string_view argument);
  /// Whether the node's result is images, one of its arguments lies so, and this one has the result's sizes
  /// or is a number for each channel, [C, 1, 1] or [N, C, 1, 1].
  bool takes_images(const graph::Node& node, std::string_view argument) const;
  /// Such an argument as images of the result's sizes.
  int broadcast_pixels(const graph::Node& node, std::string_view argument);
  /// New images.
  int make_pixels(const graph::Node& node, const std::vector<graph::SizeExpr>& sizes);
  /// A new matrix as the value's sizes say, in the order of `like`.
  int make_as(const graph::Node& node, const graph::Value& value, int like);
  /// The node's result has the numbers of the argument in the same order, in its own sizes.
  void set_viewed(const graph::Node& node, std::string_view argument);
  /// Weights of a convolution, contiguous or channels-last.
  int conv_weight(const graph::Node& node, std::string_view argument);
  /// `inputs`: channels that the weights of one output have.
  int add_conv(const kernels::StepConv& conv, int weight, int64_t inputs,
               const kernels::ConvWords& words = {});
  /// So many channels in words, and images in them.
  kernels::ConvWords conv_words(int64_t channels) const { return {word_numbers_, channels}; }
  int words_of(int images);
  /// Whether a matrix is a tensor of the graph, whose gradient is dense, and not what a mask keeps of one.
  bool is_attribute(int matrix) const { return outside_of_.contains(matrix); }
  int add_pool(const kernels::StepPool& pool);
  const PlannedConv& planned_conv(int shape) const { return built_.plan.convs[static_cast<size_t>(shape)]; }
  /// Rows of images that are numbers of a batch.
  RowCount rows_of_batch(const graph::Node& node, const std::vector<graph::SizeExpr>& sizes) const {
    return rows_of(node, sizes, 1);
  }
  /// Runs after everything else.
  void add_update(Instruction one) { updates_.push_back(one); }
  void add_least_rows(const graph::Node& node, RowCount rows);
  /// The result counts true ones among so many; more than floats count exactly are refused, in the step where the batch makes
  /// them so many.
  void add_count(const graph::Node& node, RowCount numbers);
  void add_counter(const graph::Node& node, const graph::Argument& counter, std::optional<double> step);
  /// Says that a function may be the end of the batch norm that made y; the result tells which one is.
  std::shared_ptr<kernels::NormFinish> add_norm_end(int y);
  /// Makes finish(x) = y the end of the batch norm, or a relu that of the sum with one, that made x; false
  /// where it cannot be.
  bool end_norm(int x, int y, kernels::NormFinish finish);
  /// Makes a + b = y the end of a batch norm that made one of them; false where it cannot be.
  bool end_norm_by_sum(int a, int b, int y);

  /// A parameter or buffer as it lies in memory.
  int outside(const graph::Node& node, std::string_view argument);
  /// The matrix of what a mask keeps of a parameter, and the number of the mask in instructions.
  std::pair<int, int64_t> add_masked(const graph::Node& node, int parameter);
  /// The integer input that an argument names.
  int integers(const graph::Node& node, std::string_view argument) const;
  bool is_integers(const graph::Node& node, std::string_view argument) const;
  /// The result is that integer input, too.
  void pass_integers(const graph::Node& node, std::string_view argument);
  std::vector<graph::SizeExpr> sizes(const graph::Node& node, std::string_view argument) const;
  /// The number that an argument is: a literal or a constant tensor without dimensions.
  std::optional<double> constant(const graph::Node& node, std::string_view argument) const;
  /// A number of a call; refuses values and sizes.
  double number(const graph::Node& node, std::string_view argument) const;
  const c10::IValue& literal(const graph::Node& node, std::string_view argument) const;
  bool flag(const graph::Node& node, std::string_view argument) const;

  /// A new matrix as the value's sizes say.
  int make(const graph::Node& node, const graph::Value& value);
  /// A new matrix for bool, too, 1 where it is true, and for int64, which are numbers of true ones.
  int make_of_any_type(const graph::Node& node, const graph::Value& value);
  int make_like(int matrix);
  int make(RowCount rows, int64_t width);
  int make_alias(int matrix);
  /// The numbers of a parameter, buffer or gradient in other rows.
  int make_alias(int matrix, RowCount rows, int64_t width);
  bool bf16() const { return word_numbers_ > 0; }
  /// A new matrix: the transpose of a weight.
  int transposed(int weight);
  /// out (+)= a b + bias, or a^T b if `left_transposed`, or a b^T if `right_transposed`: on packed sides where `packs()`.
  struct Product {
    int out = -1, a = -1, b = -1, bias = -1;
    bool left_transposed = false, right_transposed = false, adds = false;
    Op plain = Op::forward_product;  ///< what it is where nothing is packed
  };
  void emit_product(const Product& product, bool packs);
  /// b, or b^T, as the right side of products. With keep_packed() it is made once: for layers that read the same inputs, and
  /// in the forward pass for the backward one, which keeps half the bytes of b.
  int packed(int b, bool transposed);
  void keep_packed(int b) {
    if (word_numbers_ == 2 && needs_packed_.insert(b).second) packed_of_[{b, false}] = packed(b, false);
  }
  /// Whether the products of a layer of so many weights are packed.
  bool packs_products(int64_t weights) const;
  const PlanMatrix& at(int matrix) const { return built_.plan.matrices[static_cast<size_t>(matrix)]; }
  bool alike(int a, int b) const { return at(a).rows == at(b).rows && at(a).width == at(b).width; }
  bool needs_gradient(int matrix) const { return matrix >= 0 && needs_[static_cast<size_t>(matrix)]; }
  void set_needs_gradient(int matrix, bool needs) { needs_[static_cast<size_t>(matrix)] = needs; }
  void set(const graph::Value& value, int matrix);
  /// The value's matrix is made by `make`, which sets it, when something reads it; perhaps nothing does.
  void defer(const graph::Node& node, const graph::Value& value, std::function<void()> make);
  /// The node's result has the matrix's numbers in the same order, in its own sizes.
  void set_reshaped(const graph::Node& node, int matrix);
  /// Refuses more dimensions than a move has room for.
  void check_move_dims(const graph::Node& node, size_t dimensions) const;
  /// A dimension of a source of these sizes, as a dimension of a move's result.
  Move::Dim move_dim(const graph::Node& node, const std::vector<graph::SizeExpr>& source, size_t dim) const;
  /// The result of the node is what the move takes from a matrix: numbers that are not taken have no gradient from it.
  void set_moved(const graph::Node& node, const graph::Value& value, int source, Move move);
  void emit_move(Op op, int out, int a, Move move, bool adds);
  /// A matrix of these rows and columns with what a move takes of another one.
  int moved(int source, Move move, RowCount rows, int64_t width);
  /// The numbers of a matrix in the same order, in other rows.
  int reshaped(int matrix, RowCount rows, int64_t width);
  /// The product of sizes; refuses two that follow the batch.
  RowCount count_of(const graph::Node& node, const std::vector<graph::SizeExpr>& sizes) const {
    return rows_of(node, sizes, sizes.size());
  }
  /// A value [samples, heads, length, size], or [samples, length, heads, size] if `transposed`, whose numbers are in a
  /// matrix of `heads * size` columns.
  void set_merged(const graph::Value& value, int matrix, bool transposed);
  /// That matrix; -1 for other values.
  int merged(const graph::Node& node, std::string_view argument, bool transposed) const;
  /// Whether a matrix has the rows and columns of a value.
  bool has_shape(const graph::Node& node, const graph::Value& value, int matrix) const;
  void emit_attention(Op op, Attention attention);
  void emit_recurrent(Op op, const Recurrent& layer);
  /// y = x without the numbers that are drawn with the probability p.
  void emit_dropout(int x, int y, double p);

  /// Whether one argument of the whole graph reads the memory of a matrix, views of it, which share it, left out.
  bool read_once(int matrix) const;
  /// Whether the last instruction was a product that made it, whose gradients do not read it, and nobody else reads it.
  bool is_product_alone(int matrix);

  /// Adds an instruction; its place may be changed by `last_writer`.
  Instruction& emit(Instruction one);
  /// The forward instruction that made a matrix, if it was the last one; null otherwise.
  Instruction* last_writer(int matrix);
  /// `rule` runs in the backward pass, with the gradient of `of`, unless that has none.
  void on_backward(int of, std::function<void(int gradient)> rule);
  /// In the backward pass: `write(out, adds)` gives the gradient for `to`, adding to `out` if `adds`; with
  /// can_add = false it is always written to a matrix of its own first. Nothing where `to` needs none.
  void contribute(int to, bool can_add, const std::function<void(int out, bool adds)>& write);
  /// The gradient of `to` is `gradient` itself, or that times `scale` is added to it.
  void pass_on(int to, int gradient, float scale = 1.0F);
  void add_bound(const graph::Node& node, int input, int64_t classes, RowCount rows);

 private:
  void add_inputs();
  void add_attributes();
  void add_call(const graph::Node& node);
  void add_loss(const LossFunction& loss);
  void check_running_statistics() const;
  int gradient_for_outside(int matrix);
  int repeated(const graph::Node& node, int x, const std::vector<graph::SizeExpr>& own, int made,
               const std::vector<graph::SizeExpr>& wanted);
  int found_matrix(const graph::Node& node, const graph::Argument& argument);
  std::vector<graph::SizeExpr> sizes_of(const graph::Node& node, const graph::Value& value) const;
  int row_major(const graph::Node& node, const graph::Value& value, int matrix);
  void add_from_pixels(int to, int from);
  RowCount rows_of(const graph::Node& node, const std::vector<graph::SizeExpr>& sizes, size_t count) const;
  int shaped(const graph::Node& node, const std::vector<graph::SizeExpr>& sizes, Home home);

  const graph::Graph& graph_;
  bool training_, draws_;
  int64_t word_numbers_;
  int64_t draw_ = 0;
  std::function<bool(const at::Tensor&)> trained_;
  BuiltStep built_;
  std::map<const graph::Value*, int> matrices_;
  std::map<const graph::Value*, int> integers_;
  std::map<const graph::Value*, std::function<void()>> deferred_;
  std::map<const graph::Value*, int> merged_[2];  ///< by whether transposed
  std::map<std::pair<int, bool>, int> packed_of_;
  std::set<int> needs_packed_;
  std::map<int, size_t> outside_of_;  ///< matrix -> built_.outside
  std::map<int, int> padded_of_, row_major_of_, pixels_of_, words_of_;
  std::map<int, ImageSize> images_;
  std::map<int, std::shared_ptr<kernels::NormFinish>> norm_ends_;
  std::vector<Instruction> updates_;
  std::vector<bool> needs_;
  std::vector<std::pair<int, std::function<void(int)>>> rules_;
  std::map<int, int> gradients_;
  std::set<int> borrowed_;  ///< whose gradient is another matrix's, too: nothing is added to that in place
};

/// Adds the instructions of a call, and the rule for its gradients.
using OpRule = void (*)(Builder& builder, const graph::Node& node);
struct OpRow {
  const char* op;
  OpRule rule;
};
/// The rule of an op; null for one that has none.
OpRule find_rule(const graph::Node& node);
/// The names of all ops that have one, in order, for messages and pages.
std::vector<std::string> compiled_ops();

// The tables of the files of rules.
std::vector<OpRow> layer_rules();
std::vector<OpRow> mask_rules();
std::vector<OpRow> pointwise_rules();
std::vector<OpRow> shape_rules();
std::vector<OpRow> reduction_rules();
std::vector<OpRow> move_rules();
std::vector<OpRow> attention_rules();
std::vector<OpRow> integer_rules();
std::vector<OpRow> recurrent_rules();
std::vector<OpRow> conv_rules();
std::vector<OpRow> norm_rules();
std::vector<OpRow> pool_rules();
/// A number for each dimension of an image, which a call gives as one or two.
std::array<int64_t, 2> two_numbers(Builder& builder, const graph::Node& node, std::string_view argument);
/// The sum or mean of a matrix; gives the matrix of one number.
int add_total(Builder& builder, int x, bool mean);
/// The sum or mean of each row; gives a matrix of one column.
int add_row_sums(Builder& builder, int x, bool mean);

template <typename... Parts>
void Builder::refuse(const graph::Node& node, const Parts&... why) const {
  std::string name = node.name().empty() ? node.target() : node.name();
  if (!node.scope.empty()) name += "' in '" + node.scope;
  fail(kCompileWhere, why..., " at '", name, "' (", node.target(),
       "); without compiling, amp::fused_step and Trainer take it");
}

}  // namespace ulp::train::compiled
