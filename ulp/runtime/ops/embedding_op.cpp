// Rows of a table by their ids.
#include "ulp/runtime/ops/embedding_op.h"

#include <algorithm>

#include "ulp/kernels/index/gather.h"
#include "ulp/runtime/ops/ids.h"
#include "ulp/runtime/ops/prepacked_weights.h"
#include "ulp/runtime/ops/quantized_matrix.h"
#include "ulp/runtime/plan/verify.h"

namespace ulp::runtime {
namespace {

std::vector<int64_t> infer_embedding(const StepView& view) {
  view.expect_ids();
  const Constant* weight = view.constant("weight");
  std::vector<int64_t> shape = view.input().shape;
  if (has_coded_weight(view)) {
    shape.push_back(coded_matrix(view, 0).columns);
    if (checked_elements(shape) < 0) view.fail("the result is too large");
    return shape;
  }
  for (const char* role : {"weight_scale", "weight_zero", "weight_minimum"}) {
    if (view.constant(role) != nullptr) view.fail("'", role, "' is for a coded 'weight'");
  }
  const bool floats = weight != nullptr && (weight->type == DataType::f32 || weight->type == DataType::bf16);
  if (!floats || weight->shape.size() != 2) {
    view.fail("expected a constant 'weight' of type f32 or bf16 and 2 dimensions");
  }
  shape.push_back(weight->shape[1]);
  if (checked_elements(shape) < 0) view.fail("the result is too large");
  return shape;
}

/// Rows are copied as the table holds them; those of codes become f32.
void check_embedding_output(const StepView& view) {
  const DataType held = has_coded_weight(view) ? DataType::f32 : view.constant("weight")->type;
  view.expect_plain_numbers_output();
  view.expect_type("an output", view.output().type, held);
}

kernels::IdRange embedding_id_range(const StepView& view) {
  return {view.constant("weight")->shape[0], view.attributes<EmbeddingAttributes>().from_end};
}

std::optional<IdUse> embedding_ids(const StepView& view) {
  return IdUse{0, embedding_id_range(view).low(), embedding_id_range(view).size};
}

class EmbeddingRunner final : public Runner {
 public:
  EmbeddingRunner(const StepView& view, kernels::Isa)
      : ids_(view.input()),
        range_(embedding_id_range(view)),
        table_(view.constant("weight")->bytes),
        kernel_(source_of(view), {{item_elements(ids_), 0, 1}, {view.constant("weight")->shape[1], 1, 0}}) {}
  void run(const RunArgs& args) const override {
    kernels::FirstBadId bad;
    kernel_.run(table_.data(), args.inputs[0], args.output, first_size(ids_, args.batch), args.parallel, bad);
    report_bad_id(args, bad, ids_, args.inputs[0], range_);
  }
  std::string kernel() const override { return kernel_.kernel(); }

 private:
  static kernels::GatherSource source_of(const StepView& view) {
    return {.element_size = element_bytes(view.constant("weight")->type),
            .item = 0,
            .row = view.constant("weight")->shape[1],
            .id_type = view.input().type,
            .item_ids = item_elements(view.input()),
            .range = embedding_id_range(view)};
  }

  TensorInfo ids_;
  kernels::IdRange range_;
  SharedBytes table_;
  kernels::Gather kernel_;
};

/// A table of codes and how its rows are read.
class CodedTable {
 public:
  explicit CodedTable(const StepView& view) : table_(coded_matrix_with_scales(view, 0)) {
    const Constant& weight = *view.constant("weight");
    codes_.assign(table_.codes, table_.codes + weight.bytes.size());
    zero_.assign(table_.scale.size(), table_.bits == 4 && table_.minimum.empty() ? 8.0F : 0.0F);
    for (size_t i = 0; table_.zero != nullptr && i < zero_.size(); ++i) zero_[i] = table_.zero[i];
  }
  int64_t columns() const { return table_.columns; }
  int bits() const { return table_.bits; }

  void unpack(int64_t row, float* to) const {
    for (int64_t g = 0; g < table_.groups; ++g) {
      const auto part = static_cast<size_t>(row * table_.groups + g);
      const float zero = zero_[part], scale = table_.scale[part];
      const float minimum = table_.minimum.empty() ? 0 : table_.minimum[part];
      const int64_t first = row * table_.columns + g * table_.group;
      for (int64_t k = 0; k < table_.group; ++k) {
        to[g * table_.group + k] = (static_cast<float>(code(first + k)) - zero) * scale - minimum;
      }
    }
  }

 private:
  int32_t code(int64_t i) const {
    if (table_.bits == 8) return static_cast<int8_t>(codes_[static_cast<size_t>(i)]);
    const uint8_t pair = codes_[static_cast<size_t>(i / 2)];
    return i % 2 == 0 ? pair & 15 : pair >> 4;
  }

  QuantizedMatrix table_;
  std::vector<uint8_t> codes_;
  std::vector<float> zero_;  ///< one for each scale; 0 beside minima
};

/// Unpacks the rows it reads.
class CodedEmbeddingRunner final : public Runner {
 public:
  CodedEmbeddingRunner(const StepView& view, kernels::Isa)
      : ids_(view.input()),
        range_(embedding_id_range(view)),
        table_(packed<CodedTable>(view, "table", [&] { return std::make_unique<CodedTable>(view); })) {}
  void run(const RunArgs& args) const override {
    const int64_t count = element_count(ids_, args.batch), columns = table_->columns();
    const int64_t per_task = std::max<int64_t>(1, 16384 / columns);
    kernels::FirstBadId bad;
    args.parallel.run((count + per_task - 1) / per_task, [&](int64_t task, int) {
      const int64_t end = std::min(count, (task + 1) * per_task);
      for (int64_t i = task * per_task; i < end; ++i) {
        int64_t id = id_at(ids_.type, args.inputs[0], i);
        if (!range_.has(id)) {
          bad.report(i);
          id = 0;
        }
        table_->unpack(range_.row(id), static_cast<float*>(args.output) + i * columns);
      }
    });
    report_bad_id(args, bad, ids_, args.inputs[0], range_);
  }
  std::string kernel() const override { return "unpack" + std::to_string(table_->bits()); }

 private:
  TensorInfo ids_;
  kernels::IdRange range_;
  std::shared_ptr<const CodedTable> table_;
};

std::unique_ptr<Runner> prepare_embedding(const StepView& view, kernels::Isa isa) {
  if (has_coded_weight(view)) return std::make_unique<CodedEmbeddingRunner>(view, isa);
  return std::make_unique<EmbeddingRunner>(view, isa);
}

/// Of the table the rows that are looked up, at most.
StepWork embedding_work(const StepView& view, int64_t batch) {
  StepWork work = elementwise_work(view, batch, has_coded_weight(view) ? 2 : 0);
  const auto rows = static_cast<double>(view.constant("weight")->shape[0]);
  const auto ids = static_cast<double>(element_count(view.input(), batch));
  work.constant_bytes *= std::min(1.0, ids / rows);
  return work;
}

}  // namespace

const OpDef ops::embedding = {.roles = {"weight", "weight_scale", "weight_zero", "weight_minimum"},
                              .infer = infer_embedding,
                              .check_output = check_embedding_output,
                              .ids = embedding_ids,
                              .work = embedding_work,
                              .prepare = prepare_embedding};

}  // namespace ulp::runtime
