#include "op_samples.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <map>
#include <stdexcept>

namespace ulp::test {

namespace {

using Args = std::vector<c10::IValue>;
using Shape = std::vector<int64_t>;

class Make {
 public:
  explicit Make(Inputs inputs) : inputs_(inputs) {}

  /// Positive numbers; a square matrix is positive definite.
  at::Tensor t(const Shape& shape) {
    at::Tensor result = torch::full(shape, 0.25);
    if (shape.size() >= 2 && shape.back() == shape[shape.size() - 2]) {
      result = result + 2 * torch::eye(shape.back());
    }
    const bool low = inputs_ == Inputs::bf16 || (inputs_ == Inputs::mixed && made_++ % 2 == 0);
    return low ? result.to(torch::kBFloat16) : result;
  }
  static at::Tensor ints(const Shape& shape) { return torch::zeros(shape, torch::kLong); }

 private:
  Inputs inputs_;
  int made_ = 0;
};

using Sample = std::function<Args(Make&)>;

const c10::IValue kNone;

Args conv(Make& m, size_t dims) {
  const Shape one(dims, 1), zero(dims, 0);
  Shape x = {1, 2}, w = {2, 2};
  x.insert(x.end(), dims, 5);
  w.insert(w.end(), dims, 3);
  return {m.t(x), m.t(w), m.t({2}), one, zero, one, false, zero, 1};
}

Args with(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

Args first(Args args, size_t count) {
  args.resize(count);
  return args;
}

Args cell(Make& m, int64_t gates, bool list) {
  const at::Tensor x = m.t({2, 4}), h = m.t({2, 4});
  const c10::IValue state = list ? c10::IValue(std::vector<at::Tensor>{h, m.t({2, 4})}) : c10::IValue(h);
  return {x, state, m.t({gates * 4, 4}), m.t({gates * 4, 4}), m.t({gates * 4}), m.t({gates * 4})};
}

Args resized(Make& m, size_t dims, bool align, size_t scales) {
  Shape x = {1, 2};
  x.insert(x.end(), dims, 4);
  Args args = {m.t(x), Shape(dims, 8)};
  if (align) args.emplace_back(false);
  for (size_t i = 0; i < scales; ++i) args.push_back(kNone);
  return args;
}

void add_products(std::map<std::string, Sample>& s) {
  s["conv1d"] = [](Make& m) { return first(conv(m, 1), 3); };
  s["conv2d"] = [](Make& m) { return first(conv(m, 2), 3); };
  s["conv3d"] = [](Make& m) { return first(conv(m, 3), 3); };
  s["conv1d.padding"] = [](Make& m) { return with(first(conv(m, 1), 3), {Shape{1}, "valid"}); };
  s["conv2d.padding"] = [](Make& m) { return with(first(conv(m, 2), 3), {Shape{1, 1}, "valid"}); };
  s["conv3d.padding"] = [](Make& m) { return with(first(conv(m, 3), 3), {Shape{1, 1, 1}, "valid"}); };
  s["conv_transpose1d"] = s["conv1d"];
  s["conv_transpose2d.input"] = s["conv2d"];
  s["conv_transpose3d.input"] = s["conv3d"];
  s["convolution"] = [](Make& m) { return conv(m, 2); };
  s["_convolution.deprecated"] = [](Make& m) { return with(conv(m, 2), {false, false, true}); };
  s["_convolution"] = [](Make& m) { return with(conv(m, 2), {false, false, true, true}); };
  s["conv_tbc"] = [](Make& m) { return Args{m.t({5, 1, 2}), m.t({3, 2, 2}), m.t({2})}; };
  s["prelu"] = [](Make& m) { return Args{m.t({4, 4}), m.t({1})}; };
  s["addmv"] = [](Make& m) { return Args{m.t({4}), m.t({4, 4}), m.t({4})}; };
  s["addr"] = [](Make& m) { return Args{m.t({4, 4}), m.t({4}), m.t({4})}; };
  s["mv"] = [](Make& m) { return Args{m.t({4, 4}), m.t({4})}; };
  s["einsum"] = [](Make& m) { return Args{"ij,jk->ik", std::vector{m.t({4, 4}), m.t({4, 4})}}; };
  s["addbmm"] = [](Make& m) { return Args{m.t({4, 4}), m.t({2, 4, 4}), m.t({2, 4, 4})}; };
  s["baddbmm"] = [](Make& m) { return Args{m.t({2, 4, 4}), m.t({2, 4, 4}), m.t({2, 4, 4})}; };
  s["bmm"] = [](Make& m) { return Args{m.t({2, 4, 4}), m.t({2, 4, 4})}; };
  s["_addmm_activation"] = [](Make& m) { return Args{m.t({4}), m.t({4, 4}), m.t({4, 4})}; };
  s["lstm_cell"] = [](Make& m) { return cell(m, 4, true); };
  s["gru_cell"] = [](Make& m) { return cell(m, 3, false); };
  s["rnn_tanh_cell"] = s["rnn_relu_cell"] = [](Make& m) { return cell(m, 1, false); };
  s["scaled_dot_product_attention"] = [](Make& m) {
    return Args{m.t({1, 2, 4, 4}), m.t({1, 2, 4, 4}), m.t({1, 2, 4, 4})};
  };
  s["_native_multi_head_attention"] = [](Make& m) {
    return Args{m.t({1, 3, 4}), m.t({1, 3, 4}), m.t({1, 3, 4}), 4,       2,
                m.t({12, 4}),   m.t({12}),      m.t({4, 4}),    m.t({4})};
  };
}

void add_losses(std::map<std::string, Sample>& s) {
  s["poisson_nll_loss"] = [](Make& m) { return Args{m.t({4}), m.t({4}), true, false, 1e-8, 1}; };
  s["cosine_embedding_loss"] = [](Make& m) { return Args{m.t({4, 4}), m.t({4, 4}), m.t({4})}; };
  s["margin_ranking_loss"] = [](Make& m) { return Args{m.t({4}), m.t({4}), m.t({4})}; };
  s["nll_loss"] = s["cross_entropy_loss"] = s["multi_margin_loss"] = [](Make& m) {
    return Args{m.t({3, 4}), Make::ints({3})};
  };
  s["nll_loss2d"] = [](Make& m) { return Args{m.t({1, 3, 2, 2}), Make::ints({1, 2, 2})}; };
  s["multilabel_margin_loss"] = [](Make& m) { return Args{m.t({3, 4}), Make::ints({3, 4})}; };
  s["multilabel_margin_loss_forward"] = [](Make& m) { return Args{m.t({3, 4}), Make::ints({3, 4}), 1}; };
  s["ctc_loss.IntList"] = [](Make& m) {
    return Args{m.t({5, 1, 4}), torch::ones({1, 2}, torch::kLong), Shape{5}, Shape{2}};
  };
  s["ctc_loss.Tensor"] = [](Make& m) {
    return Args{m.t({5, 1, 4}), torch::ones({1, 2}, torch::kLong), torch::tensor({5}), torch::tensor({2})};
  };
  s["dot"] = s["vdot"] = s["binary_cross_entropy"] = [](Make& m) { return Args{m.t({4}), m.t({4})}; };
}

void add_norms_and_reductions(std::map<std::string, Sample>& s) {
  s["layer_norm"] = s["rms_norm"] = [](Make& m) { return Args{m.t({2, 4}), Shape{4}}; };
  s["native_layer_norm"] = [](Make& m) { return Args{m.t({2, 4}), Shape{4}, m.t({4}), m.t({4}), 1e-5}; };
  s["group_norm"] = [](Make& m) { return Args{m.t({2, 4}), 2}; };
  s["nuclear_norm.dim"] = [](Make& m) { return Args{m.t({4, 4}), Shape{0, 1}}; };
  s["renorm"] = [](Make& m) { return Args{m.t({4, 4}), 2, 0, 1}; };
  s["linalg_matrix_norm"] = [](Make& m) { return Args{m.t({4, 4}), 1}; };
  s["linalg_matrix_norm.str_ord"] = s["linalg_cond.p_str"] = [](Make& m) { return Args{m.t({4, 4}), "fro"}; };
  s["quantile"] = s["nanquantile"] = [](Make& m) { return Args{m.t({4}), m.t({1})}; };
  s["quantile.scalar"] = s["nanquantile.scalar"] = [](Make& m) { return Args{m.t({4}), 0.5}; };
  s["bilinear"] = [](Make& m) { return Args{m.t({2, 3}), m.t({2, 4}), m.t({5, 3, 4})}; };
  s["cross"] = [](Make& m) { return Args{m.t({2, 3}), m.t({2, 3})}; };
  s["tensordot"] = [](Make& m) { return Args{m.t({4, 4}), m.t({4, 4}), Shape{1}, Shape{0}}; };
  s["index_put"] = [](Make& m) {
    c10::List<std::optional<at::Tensor>> indices;
    indices.push_back(Make::ints({1}));
    return Args{m.t({4, 2}), indices, m.t({1, 2})};
  };
  s["scatter_add"] = [](Make& m) { return Args{m.t({4, 4}), 0, Make::ints({4, 4}), m.t({4, 4})}; };
  s["index_copy"] = [](Make& m) { return Args{m.t({4, 2}), 0, Make::ints({1}), m.t({1, 2})}; };
  s["fake_quantize_per_tensor_affine"] = [](Make& m) { return Args{m.t({4}), 1.0, 0, 0, 255}; };
}

void add_images(std::map<std::string, Sample>& s) {
  s["upsample_nearest1d"] = s["_upsample_nearest_exact1d"] = [](Make& m) { return resized(m, 1, false, 1); };
  s["upsample_nearest2d"] = s["_upsample_nearest_exact2d"] = [](Make& m) { return resized(m, 2, false, 2); };
  s["upsample_nearest3d"] = s["_upsample_nearest_exact3d"] = [](Make& m) { return resized(m, 3, false, 3); };
  s["upsample_linear1d"] = [](Make& m) { return resized(m, 1, true, 1); };
  s["upsample_bilinear2d"] = s["_upsample_bilinear2d_aa"] = s["upsample_bicubic2d"] =
      s["_upsample_bicubic2d_aa"] = [](Make& m) { return resized(m, 2, true, 2); };
  s["upsample_trilinear3d"] = [](Make& m) { return resized(m, 3, true, 3); };
  s["grid_sampler"] = s["grid_sampler_2d"] = s["_grid_sampler_2d_cpu_fallback"] = [](Make& m) {
    return Args{m.t({1, 1, 4, 4}), m.t({1, 3, 3, 2}), 0, 0, false};
  };
  s["grid_sampler_3d"] = [](Make& m) {
    return Args{m.t({1, 1, 4, 4, 4}), m.t({1, 3, 3, 3, 3}), 0, 0, false};
  };
  s["avg_pool3d"] = s["max_pool3d"] = s["adaptive_avg_pool3d"] = s["adaptive_max_pool3d"] = [](Make& m) {
    return Args{m.t({1, 1, 4, 4, 4}), Shape{2, 2, 2}};
  };
  s["max_unpool2d"] = [](Make& m) { return Args{m.t({1, 1, 2, 2}), Make::ints({1, 1, 2, 2}), Shape{4, 4}}; };
  s["max_unpool3d"] = [](Make& m) {
    return Args{m.t({1, 1, 2, 2, 2}), Make::ints({1, 1, 2, 2, 2}), Shape{4, 4, 4}, Shape{2, 2, 2},
                Shape{0, 0, 0}};
  };
  s["fractional_max_pool2d"] = [](Make& m) {
    return Args{m.t({1, 1, 5, 5}), Shape{2, 2}, Shape{2, 2}, m.t({1, 1, 2})};
  };
  s["fractional_max_pool3d"] = [](Make& m) {
    return Args{m.t({1, 1, 5, 5, 5}), Shape{2, 2, 2}, Shape{2, 2, 2}, m.t({1, 1, 3})};
  };
  s["reflection_pad1d"] = s["replication_pad1d"] = [](Make& m) { return Args{m.t({1, 4}), Shape{1, 1}}; };
  s["reflection_pad2d"] = s["replication_pad2d"] = [](Make& m) {
    return Args{m.t({1, 4, 4}), Shape{1, 1, 1, 1}};
  };
  s["replication_pad3d"] = [](Make& m) { return Args{m.t({1, 4, 4, 4}), Shape(6, 1)}; };
  s["stft"] = [](Make& m) { return Args{m.t({16}), 4, kNone, kNone, kNone, false, kNone, true}; };
  s["stft.center"] = [](Make& m) {
    return Args{m.t({16}), 4, kNone, kNone, kNone, true, "reflect", false, kNone, true};
  };
}

void add_linear_algebra(std::map<std::string, Sample>& s) {
  s["view_as_complex"] = [](Make& m) { return Args{m.t({4, 2})}; };
  s["orgqr"] = s["linalg_householder_product"] = [](Make& m) { return Args{m.t({4, 4}), m.t({4})}; };
  s["ormqr"] = [](Make& m) { return Args{m.t({4, 4}), m.t({4}), m.t({4, 4})}; };
  s["lu_solve"] = [](Make& m) { return Args{m.t({4, 4}), m.t({4, 4}), torch::arange(1, 5, torch::kInt)}; };
  s["linalg_matrix_rank"] = [](Make& m) { return Args{m.t({4, 4}), 0.1}; };
  s["linalg_tensorsolve"] = [](Make& m) { return Args{m.t({4, 4}), m.t({4})}; };
  s["linalg_tensorinv"] = [](Make& m) { return Args{m.t({4, 4}), 1}; };
}

const std::map<std::string, Sample>& samples() {
  static const auto table = [] {
    std::map<std::string, Sample> s;
    add_products(s);
    add_losses(s);
    add_norms_and_reductions(s);
    add_images(s);
    add_linear_algebra(s);
    return s;
  }();
  return table;
}

/// For an argument of which nothing is known but its type.
c10::IValue plain(const c10::Argument& argument, Make& m) {
  const c10::TypePtr type = argument.type();
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return m.t({4, 4});
    case c10::TypeKind::ListType:
      if (type->containedType(0)->kind() == c10::TypeKind::TensorType) {
        return std::vector{m.t({4, 4}), m.t({4, 4})};
      }
      return Shape{1};
    case c10::TypeKind::FloatType:
      return 0.5;
    case c10::TypeKind::BoolType:
      return false;
    case c10::TypeKind::OptionalType:
      return kNone;
    default:
      return 1;  // integers and numbers
  }
}

c10::OperatorHandle find_op(const std::string& target) {
  const size_t dot = target.find('.');
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      target.substr(0, dot).c_str(), dot == std::string::npos ? "" : target.substr(dot + 1).c_str());
}

}  // namespace

std::vector<c10::IValue> sample_arguments(const std::string& target, Inputs inputs) {
  Make make(inputs);
  const auto found = samples().find(target.substr(std::string("aten::").size()));
  Args args = found == samples().end() ? Args{} : found->second(make);
  const c10::OperatorHandle op = find_op(target);
  const auto& wanted = op.schema().arguments();
  for (size_t i = args.size(); i < wanted.size(); ++i) {
    args.push_back(wanted[i].default_value() ? *wanted[i].default_value() : plain(wanted[i], make));
  }
  return args;
}

void call(const std::string& target, std::vector<c10::IValue> arguments) {
  find_op(target).callBoxed(arguments);
}

}  // namespace ulp::test
