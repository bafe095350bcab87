// lstm and gru: one direction of one layer, with f32 or bf16 weights or int8 ones whose inputs are quantized as
// it runs.
#include <algorithm>
#include <limits>

#include "ulp/kernels/linear/dynamic_linear.h"
#include "ulp/kernels/sequence/recurrent.h"
#include "ulp/runtime/ops/kernel_args.h"
#include "ulp/runtime/ops/op.h"
#include "ulp/runtime/ops/prepacked_weights.h"

namespace ulp::runtime {
namespace {

kernels::Cell cell_of(const StepView& view) {
  return view.step().op == Op::lstm ? kernels::Cell::lstm : kernels::Cell::gru;
}

/// Checks a weight [rows, columns] and its scales.
void check_weight(const StepView& view, const char* role, const char* scale_role, DataType type, int64_t rows,
                  int64_t columns) {
  const int64_t shape[] = {rows, columns}, channels[] = {rows};
  view.expect_constant(role, type, shape);
  if (type == DataType::i8) {
    view.expect_scales(scale_role, channels);
    if (columns > kernels::kMaxDynamicFeatures) {
      view.fail("expected at most ", kernels::kMaxDynamicFeatures, " features for '", role, "', got ",
                columns);
    }
  } else if (view.constant(scale_role) != nullptr || view.attributes<RecurrentAttributes>().per_tensor) {
    view.fail("'", scale_role, "' and per_tensor are for i8 weights");
  }
}

/// First states are given for all cells or for none.
void check_states(const StepView& view, int64_t batch, int64_t width) {
  const size_t states = cell_of(view) == kernels::Cell::lstm ? 2 : 1;
  if (view.input_count() != 1 && view.input_count() != 1 + states)
    view.fail("expected no first states or ", states, ", got ", view.input_count() - 1);
  const std::vector<int64_t> shape = {batch, width};
  for (size_t i = 1; i < view.input_count(); ++i) {
    view.expect_plain_f32(i, 2);
    if (view.input(i).shape == shape) continue;
    view.fail("expected first states ", shape_text(shape), ", got ", shape_text(view.input(i).shape));
  }
  if (view.attributes<RecurrentAttributes>().last_c && states == 1) view.fail("last_c is for lstm");
}

std::vector<int64_t> infer_recurrent(const StepView& view) {
  view.expect_plain_f32(0, 3);
  const std::vector<int64_t>& x = view.input().shape;
  if (x.size() != 3) view.fail("expected an input [N, steps, features], got ", shape_text(x));
  const Constant* hidden = view.constant("weight_hh");
  if (hidden == nullptr || hidden->shape.size() != 2) {
    view.fail("expected a constant 'weight_hh' of 2 dimensions");
  }
  const int64_t gates = kernels::gate_count(cell_of(view)), width = hidden->shape[1];
  const bool known = hidden->type == DataType::i8 || hidden->type == DataType::bf16;
  const DataType type = known ? hidden->type : DataType::f32;
  if (width > (int64_t{1} << 24) / gates)
    view.fail("expected at most 2^24 gates, got ", gates, " of ", width);
  check_weight(view, "weight_ih", "weight_ih_scale", type, gates * width, x[2]);
  check_weight(view, "weight_hh", "weight_hh_scale", type, gates * width, width);
  const int64_t rows[] = {gates * width};
  for (const char* role : {"bias_ih", "bias_hh"}) {
    if (view.constant(role) != nullptr) view.expect_constant(role, DataType::f32, rows);
  }
  check_states(view, x[0], width);
  return {x[0], view.attributes<RecurrentAttributes>().last_c ? x[1] + 1 : x[1], width};
}

void check_recurrent_output(const StepView& view) {
  view.expect_plain_f32_output();
}

/// Weights for the kernel, with copies of what must be aligned.
struct Gates {
  std::vector<float> values, scale, bias;
  std::vector<uint16_t> rounded;
  kernels::GateWeights weights;

  Gates(const StepView& view, const char* role, const char* scale_role, const char* bias_role) {
    const Constant& weight = *view.constant(role);
    if (weight.type == DataType::i8) {
      scale = floats_of(*view.constant(scale_role));
      weights.codes = reinterpret_cast<const int8_t*>(weight.bytes.data());
      weights.scale = scale.data();
    } else if (weight.type == DataType::bf16) {
      rounded.resize(weight.bytes.size() / sizeof(uint16_t));
      std::memcpy(rounded.data(), weight.bytes.data(), weight.bytes.size());
      weights.bf16 = rounded.data();
    } else {
      values = floats_of(weight);
      weights.f32 = values.data();
    }
    if (const Constant* constant = view.constant(bias_role)) {
      bias = floats_of(*constant);
      weights.bias = bias.data();
    }
  }
};

/// Sequences at a time: enough to make the reading of all weights in each step cheap, few enough that the products of all
/// steps with the inputs need little memory.
constexpr int64_t kSequences = 256;

class RecurrentRunner final : public Runner {
 public:
  RecurrentRunner(const StepView& view, kernels::Isa isa)
      : info_(view.input()),
        last_c_(view.attributes<RecurrentAttributes>().last_c),
        hidden_(view.output().shape[2]),
        most_(view.attributes<RecurrentAttributes>().per_tensor ? std::numeric_limits<int64_t>::max()
                                                                : kSequences),
        recurrent_(packed<kernels::Recurrent>(view, "recurrent", [&] { return make(view, isa); })) {}
  size_t workspace_bytes(int64_t batch, int workers) const override {
    return recurrent_->workspace_bytes(std::min(first_size(info_, batch), most_), info_.shape[1], workers);
  }
  void run(const RunArgs& args) const override {
    const int64_t sequences = first_size(info_, args.batch);
    for (int64_t begin = 0; begin < sequences; begin += most_) {
      const auto input = [&](size_t i, int64_t item) {
        return i < args.inputs.size() ? static_cast<const float*>(args.inputs[i]) + begin * item : nullptr;
      };
      recurrent_->run(
          std::min(most_, sequences - begin), info_.shape[1], input(0, info_.shape[1] * info_.shape[2]),
          {.first_h = input(1, hidden_), .first_c = input(2, hidden_), .last_c = last_c_},
          static_cast<float*>(args.output) + begin * (info_.shape[1] + (last_c_ ? 1 : 0)) * hidden_,
          args.workspace, args.parallel);
    }
  }
  std::string kernel() const override { return recurrent_->name(); }

 private:
  static std::unique_ptr<kernels::Recurrent> make(const StepView& view, kernels::Isa isa) {
    const Gates input(view, "weight_ih", "weight_ih_scale", "bias_ih");
    const Gates hidden(view, "weight_hh", "weight_hh_scale", "bias_hh");
    return kernels::make_recurrent({.cell = cell_of(view),
                                    .input = view.input().shape[2],
                                    .hidden = view.output().shape[2],
                                    .reverse = view.attributes<RecurrentAttributes>().reverse,
                                    .per_tensor = view.attributes<RecurrentAttributes>().per_tensor},
                                   input.weights, hidden.weights, isa);
  }

  TensorInfo info_;
  bool last_c_;
  int64_t hidden_, most_;
  std::shared_ptr<const kernels::Recurrent> recurrent_;
};

/// Each step of time reads all weights.
bool recurrent_keeps_batch_whole(const StepView&) {
  return true;
}

int64_t elements_of(const Constant& matrix) {
  return matrix.shape[0] * matrix.shape[1];
}

/// Every step of time multiplies all weights.
StepWork recurrent_work(const StepView& view, int64_t batch) {
  StepWork work = elementwise_work(view, batch);
  const auto weights = static_cast<double>(elements_of(*view.constant("weight_ih")) +
                                           elements_of(*view.constant("weight_hh")));
  work.operations =
      2 * weights * static_cast<double>(first_size(view.input(), batch) * view.input().shape[1]);
  work.math = math_of(view.constant("weight_hh")->type);
  return work;
}

OpDef recurrent_op() {
  return {.max_inputs = 3,
          .roles = {"weight_ih", "weight_ih_scale", "weight_hh", "weight_hh_scale", "bias_ih", "bias_hh"},
          .infer = infer_recurrent,
          .check_output = check_recurrent_output,
          .keeps_batch_whole = recurrent_keeps_batch_whole,
          .work = recurrent_work,
          .prepare = make_runner<RecurrentRunner>};
}

}  // namespace

const OpDef ops::lstm = recurrent_op();
const OpDef ops::gru = recurrent_op();

}  // namespace ulp::runtime
