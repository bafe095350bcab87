// A training step as data: matrices of floats with planned lifetimes in one arena, and the instructions that compute them;
// internal to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ulp/base/parallel.h"
#include "ulp/kernels/training/attention_rows.h"
#include "ulp/kernels/training/conv_products.h"
#include "ulp/kernels/training/layer_product.h"
#include "ulp/kernels/training/packed_product.h"
#include "ulp/kernels/training/recurrent_cells.h"
#include "ulp/kernels/training/step_images.h"
#include "ulp/kernels/training/step_rows.h"

namespace ulp::train::compiled {

/// A number of rows that may follow the batch: numerator * batch / denominator + offset, always whole.
struct RowCount {
  int64_t numerator = 0, denominator = 1, offset = 1;
  int64_t at(int64_t batch) const { return numerator * batch / denominator + offset; }
  RowCount times(int64_t factor) const { return {numerator * factor, denominator, offset * factor}; }
  bool operator==(const RowCount&) const = default;
};

/// Where the numbers of a matrix are.
enum class Home : uint8_t {
  arena,
  input,    ///< the caller's, dense
  outside,  ///< a parameter, buffer or gradient: memory that lives longer than a step
};

/// A matrix of floats: the last dimension of a tensor by all others; a last dimension that follows the batch counts as
/// rows. Rows in the arena lie a multiple of 16 apart, and what is between them is never read as a result.
struct PlanMatrix {
  RowCount rows;
  int64_t width = 1, stride = 1;
  Home home = Home::arena;
  int alias_of = -1;  ///< the same memory as that matrix
};

/// Where a matrix is in this step.
struct MatrixView {
  float* data = nullptr;
  int64_t rows = 0, width = 0, stride = 0;
  int64_t count() const { return rows * stride; }
  kernels::StepRows as_rows() const { return {data, rows, width, stride}; }
};

enum class Op : uint8_t {
  transpose,        ///< out = a^T
  forward_product,  ///< out = finish(a b + c), b being a transposed weight
  input_product,    ///< out (+)= a b
  weight_product,   ///< out (+)= a^T b
  pack,             ///< out = a, or a^T if `transposed`, as the right side of products
  packed_product,   ///< out (+)= finish(a b + c), or a^T b if `transposed`, b being packed
  value,            ///< out = function(a)
  gradient,    ///< out = the gradient from a, with the input b and the value c where the function needs them
  add_scaled,  ///< out = a + p0 b
  multiply,    ///< out = a b
  dropout,     ///< out = a without what is drawn for the number `columns` in p0 of all cases, times p1
  quotient,    ///< out = a / b
  select,      ///< out = the smaller (p0 = 1) or larger (-1) of a and b
  select_gradient,  ///< out = what of the gradient a comes to b, c being the other one
  fill,             ///< out = p0
  copy,             ///< `columns` columns of out from `to` on (+)= those of a from `from` on
  reshape,          ///< out = a in row-major order
  column_sums,      ///< out (+)= the sum of the rows of a
  row_sums,         ///< out[r] = the sum of row r of a, divided by how many there are if `mean`
  repeat_rows,      ///< each row of out = the one row a
  repeat_columns,   ///< row r of out = the number a[r], divided by how many there are if `mean`
  total,            ///< out = the sum of a, divided by how many there are if `mean`
  spread,           ///< out = the one number a, divided by how many there are if `mean`
  pick,             ///< out[r] = a[r, classes[r]]
  unpick,           ///< out = 0 but for out[r, classes[r]] = a[r]
  log_softmax,
  log_softmax_gradient,  ///< from the gradient a and the value b
  softmax,
  softmax_gradient,
  layer_norm,  ///< of a with the weight b and the bias c
  layer_norm_gradient,  ///< out, d (+)= of the weight, e (+)= of the bias, from the gradient a, the input b, the weight c
  mask,                 ///< out = a where the bits of mask `from` are set, else +0
  point_loss,          ///< the loss of a for the target b, and its gradient out
  cross_entropy,       ///< the loss of a for `classes`, and its gradient out
  take_loss,           ///< the loss is the one number a
  move,                ///< out = what of a the move `detail` names
  move_back,           ///< what of out the move `detail` names (+)= a
  embedding,           ///< out[r] = row classes[r] of a
  embedding_gradient,  ///< row classes[r] of out += a[r], but for the class `from`; out = 0 before unless `adds`
  choose,              ///< out = a (none: p0) where c is not 0, else b (none: p1)
  from_integers,  ///< out = the integers `classes`, or 1 where they compare with `from` as `compare` says
  attention,      ///< the attention `detail`
  attention_gradient,  ///< its gradient
  recurrent,           ///< all steps of the recurrent layer `detail`
  recurrent_gradient,  ///< their gradients
  // For images that lie channels-last, by image_run.cpp; `shape` names a convolution or a pool of the plan.
  to_words,            ///< out = the images a, rounded to bf16, in words of packed_product_ops()
  to_pixels,           ///< out = the row-major images a, of `from` by `to` pixels
  from_pixels,         ///< and back
  pack_weights,        ///< out = the weights a as `convolution` reads them
  pack_reversed,       ///< out = the weights a as `convolution_input` reads them
  unpack_weights,      ///< out (+)= a, which `convolution_weight` made
  convolution,         ///< out = finish(a with the weights b + c)
  convolution_input,   ///< out (+)= the gradient of the input from a with the weights b (+ c)
  convolution_weight,  ///< out = the gradient of the weights from the input a and the gradient b
  norm_moments,        ///< out = moments of the images a
  norm_join,           ///< out = statistics from the moments a of d, with the weight b and the bias c
  norm_given,  ///< out = statistics from the mean a and the variance b, with the weight c and the bias d
  norm_apply,  ///< out = finish(a by the statistics b + c)
  norm_gradient_sums,  ///< out = sums of the gradient a, with the input b and the statistics c
  norm_gradient_join,  ///< out = means of a, by c; d (+)= of the weight, e (+)= of the bias
  norm_gradient,       ///< out = from the gradient a, the input b, the statistics c, the means d if any
  norm_update,         ///< the running mean b and variance c move to those of a by p0
  max_pool,            ///< out = of a, and d = which ones
  max_pool_gradient,   ///< from the gradient a and which ones b
  average_pool,
  average_pool_gradient,
};

/// A comparison of an integer with a number; none: the integer itself.
enum class Compare : uint8_t { none, equal, not_equal, less, less_equal, greater, greater_equal };

/// One call of a kernel. Operands are numbers of matrices, -1 for none.
struct Instruction {
  Op op = Op::fill;
  int out = -1, a = -1, b = -1, c = -1, d = -1, e = -1;
  kernels::Differentiable function = kernels::Differentiable::affine;
  kernels::PointLoss loss = kernels::PointLoss::mse;
  kernels::ProductFinish finish = kernels::ProductFinish::none;
  kernels::NormFinish norm_finish = kernels::NormFinish::none;
  float p[3] = {};
  bool adds = false;         ///< to what `out` (or d) holds
  bool second_adds = false;  ///< to what e holds
  bool mean = false;
  bool transposed = false;
  bool centered = true;  ///< a norm: of layer_norm, else of rms_norm
  Compare compare = Compare::none;
  int64_t from = 0, to = 0, columns = 0;
  int classes = -1;  ///< which integer input; kTargets: the targets of the loss
  int detail = -1;   ///< which of the plan's moves, attentions or recurrent layers
  int shape = -1;    ///< which convolution or pool of the plan
};
constexpr int kTargets = -2;

/// Dimensions that a move may have.
inline constexpr size_t kMostMoveDims = 16;

/// A permutation, a part or a repetition of a matrix: where the numbers of the result are in the source.
struct Move {
  /// A dimension of the result.
  struct Dim {
    RowCount size;
    RowCount step;        ///< in the source, in rows; 0 where the dimension repeats it
    int64_t columns = 0;  ///< in the source, in columns
  };
  std::vector<Dim>
      dims;  ///< from the first to the last, which is the width of the result unless it follows the batch
  RowCount start{0, 1, 0};
  int64_t start_column = 0;
  bool repeats() const;
};

/// Queries, keys, values or results of attention: heads in rows of their own ([..., heads, length, size]) or side by side in
/// the columns of one ([..., length, heads * size]).
struct HeadsMatrix {
  int matrix = -1;
  bool merged = false;
};

/// Scaled dot-product attention of `batch` times `heads` heads, each key head for as many query heads as divides. The
/// gradient has the matrices of the gradients, too.
struct Attention {
  HeadsMatrix query, key, value, result;
  HeadsMatrix query_gradient, key_gradient, value_gradient, result_gradient;
  int log_sums = -1;  ///< log of the sum of exponentials: a number for each query of each head
  RowCount batch;
  int64_t heads = 1, key_heads = 1, queries = 0, keys = 0, size = 0, value_size = 0;
  float scale = 1;
  bool causal = false;
  /// Numbers that are added to the scores, or whether keys count: a row for each query, the same one where a step is 0.
  int mask = -1;
  bool mask_truth = false;
  int64_t mask_sample = 0, mask_head = 0, mask_query = 0;  ///< in rows
  float dropout = 0;
  int64_t draw = 0;  ///< the number of the dropout
  /// Floats that one caller of run_attention needs.
  int64_t scratch() const;
};

/// One direction of a layer of LSTM or GRU cells. Matrices of all steps have a row for each sample and step, sample by
/// sample if `batch_first`; gates and states are those of RecurrentCellOps.
struct Recurrent {
  bool gru = false, batch_first = false, reverse = false;
  RowCount batch;
  int64_t steps = 0, hidden = 0;
  int gates = -1;         ///< of the input, with its bias; behind their curves afterwards
  int hidden_gates = -1;  ///< gru: of the state before
  int hidden_bias = -1;   ///< gru: of those
  int packed = -1;        ///< weights of the state, as the right side of its products
  int result = -1;        ///< states, `hidden` columns from `column` on
  int64_t column = 0;
  int before = -1;                        ///< the states before each step
  int cells = -1;                         ///< lstm
  int first_state = -1, first_cell = -1;  ///< [batch, hidden]; none: 0
  // For the gradient, whose `packed` are the weights in the other order:
  int result_gradient = -1, gates_gradient = -1;
  int hidden_gradient = -1;  ///< of hidden_gates; lstm: that of the gates
  int first_state_gradient = -1, first_cell_gradient = -1;
  int64_t gate_count() const { return gru ? 3 : 4; }
  /// Floats that one caller of run_recurrent needs.
  int64_t scratch() const;
};

/// A convolution, and the steps of its weights from one output channel, input channel and tap to the next.
struct PlannedConv {
  kernels::StepConv conv;
  int64_t output_step = 0, input_step = 0, tap_step = 1;
  kernels::ConvWords words = {};  ///< of the channels that are summed
};

/// The whole step: instructions up to `forward_end` give the result of the graph, those up to
/// `update_begin` the loss and the gradients; the last ones change buffers, when nothing can fail any more.
struct StepPlan {
  std::vector<PlanMatrix> matrices;
  std::vector<Instruction> instructions;
  std::vector<Move> moves;
  std::vector<Attention> attentions;
  std::vector<Recurrent> recurrents;
  size_t forward_end = 0, update_begin = 0;
  int result = -1;  ///< of the graph
  std::vector<PlannedConv> convs;
  std::vector<kernels::StepPool> pools;

  /// The matrix whose memory it is.
  int root(int matrix) const;
  /// The matrices that an instruction reads or writes; -1 for operands that it does not have.
  std::vector<int> operands(const Instruction& one) const;
};

/// The plan for a largest batch: where each matrix lies.
struct ArenaPlan {
  std::vector<size_t> offsets;  ///< in floats, of matrices in the arena
  size_t floats = 0;
};
ArenaPlan place_matrices(const StepPlan& plan, int64_t batch);

/// What instructions read beside matrices, and what they give.
struct StepRun {
  std::vector<MatrixView> views;
  std::vector<const int64_t*> integers;  ///< of the integer inputs
  std::vector<const uint8_t*> masks;     ///< bits of parameters, as libtorch/bit_mask.h has them
  const int64_t* targets = nullptr;
  const float* weights = nullptr;  ///< of the rows, for cross_entropy; null: 1 each
  formats::RandomKey random;       ///< of dropout in this step; the lower half of its stream is free
  double loss = 0;
  int64_t batch = 0;
  const Parallel* pool =
      nullptr;  ///< whose threads take pieces of instructions; null: the calling thread alone
  double multiply_add_nanoseconds = 0.04;  ///< on one thread, in products
  std::vector<double> block_sums;          ///< of the blocks of rows of one instruction
  std::vector<float> moments;              ///< of the rows of one instruction
  const kernels::LayerProductOps* products = nullptr;
  const kernels::PackedProductOps* packed = nullptr;
  const kernels::StepRowOps* rows = nullptr;
  const kernels::AttentionRowOps* attention = nullptr;
  const kernels::RecurrentCellOps* cells = nullptr;
  const kernels::ConvProductOps* convs = nullptr;
  const kernels::ConvProductOps* word_convs = nullptr;
  const kernels::StepImageOps* images = nullptr;
  const StepPlan* plan = nullptr;
  std::vector<float> scratch;  ///< of the threads, one after the other
  size_t scratch_floats = 0;   ///< of each thread
};

/// Moves the rows [begin, end) of the result, the last dimension left out.
void run_move(const StepRun& step, const Instruction& one, int64_t begin, int64_t end);
/// Packs the panels [begin, end) of the right side of products.
void run_pack(const StepRun& step, const Instruction& one, int64_t begin, int64_t end);
/// How many there are.
int64_t pack_panels(const StepRun& step, const Instruction& one);
/// Computes the rows [begin, end) of a product. `scratch` holds packed_scratch() floats.
void run_packed_product(const StepRun& step, const Instruction& one, int64_t begin, int64_t end,
                        float* scratch);
int64_t packed_scratch();
/// Computes the key heads [begin, end) of all samples, forward or backward. `scratch` holds Attention::scratch() floats.
void run_attention(const Attention& attention, const StepRun& step, int64_t begin, int64_t end,
                   float* scratch);
void run_attention_gradient(const Attention& attention, const StepRun& step, int64_t begin, int64_t end,
                            float* scratch);

/// Computes all steps of the samples [begin, end), forward or backward. `scratch` holds Recurrent::scratch() floats.
void run_recurrent(const Recurrent& layer, const StepRun& step, int64_t begin, int64_t end, float* scratch);
void run_recurrent_gradient(const Recurrent& layer, const StepRun& step, int64_t begin, int64_t end,
                            float* scratch);
/// How many units an instruction on images has, which may be computed in any order.
int64_t image_units(const StepRun& step, const Instruction& one);
/// Computes units [begin, end) of an instruction on images.
void run_image_units(const StepRun& step, const Instruction& one, int64_t begin, int64_t end);

/// Runs the instructions [begin, end), one after the other, each in pieces where that is worth it (partition.h).
void run(const StepPlan& plan, StepRun& step, size_t begin, size_t end);

}  // namespace ulp::train::compiled
