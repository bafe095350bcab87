// What the engine has, files have: each op of one list (frontend_ops.cpp), its options drawn, through the
// engine, ONNX, TensorFlow Lite, Core ML and torch.export's archives, beside the module. What one of them
// has not stands in the list and is refused by a message that names the call.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "coreml_run.h"
#include "error_of.h"
#include "frontend_ops.h"
#include "temporary_folder.h"
#include "tflite_run.h"
#include "ulp/base/error.h"
#include "ulp/exchange/export_coreml.h"
#include "ulp/exchange/export_onnx.h"
#include "ulp/exchange/export_pt2.h"
#include "ulp/exchange/export_tflite.h"
#include "ulp/exchange/import_onnx.h"
#include "ulp/exchange/import_pt2.h"
#include "ulp/lower/evaluate.h"
#include "ulp/lower/lower.h"
#include "ulp/runtime/engine/engine.h"

namespace ulp::test {

namespace {

using FormResults = std::vector<at::Tensor>;
using FormModule = std::shared_ptr<graph::GraphModule>;

/// A function of one tensor with several results.
struct CallNet : torch::nn::Module {
  std::function<FormResults(const at::Tensor&)> body;
  FormResults forward(at::Tensor x) { return body(x); }
};

FormModule captured_call(const FrontendCall& call) {
  auto net = std::make_shared<CallNet>();
  net->body = call.body;
  net->eval();
  FormModule module = capture(net, {call.x});
  module->eval();
  return module;
}

FormResults by_engine(const FormModule& module, const at::Tensor& x) {
  runtime::Engine engine(lower(*module));
  return run_engine_all(engine, {x});
}

FormResults by_onnx(const FormModule& module, const at::Tensor& x) {
  return exchange::import_onnx(exchange::export_onnx(*module), "model.onnx")->forward_all({x});
}

/// Images of four dimensions lie with the channels last.
FormResults by_tflite(const FormModule& module, const at::Tensor& x) {
  const auto file = read_tflite(exchange::export_tflite(*module, {.batch = x.size(0)}));
  return TfliteRun(*file).run({channels_last(x)});
}

FormResults by_coreml(const FormModule& module, const at::Tensor& x) {
  const TemporaryFolder folder;
  exchange::export_coreml(*module, folder / "m.mlpackage", {.batch = x.size(0)});
  return MilRun(read_coreml(folder / "m.mlpackage")).run_all(x);
}

FormResults by_pt2(const FormModule& module, const at::Tensor& x) {
  return exchange::import_pt2(exchange::export_pt2(*module), "model.pt2")->forward_all({x});
}

struct EveryForm {
  const char* name;
  FormResults (*run)(const FormModule&, const at::Tensor&);
};
constexpr EveryForm kEveryForm[] = {
    {"engine", by_engine}, {"onnx", by_onnx}, {"tflite", by_tflite}, {"coreml", by_coreml}, {"pt2", by_pt2}};

bool is_near(const at::Tensor& made, const at::Tensor& right) {
  if (made.sizes() != right.sizes()) return false;
  const at::Tensor wide = right.to(at::kDouble);
  const double largest = wide.numel() == 0 ? 0 : wide.nan_to_num(0, 0, 0).abs().max().item<double>();
  return torch::allclose(made.to(at::kDouble), wide, 1e-5, 4e-6 * std::max(largest, 0.1), /*equal_nan=*/true);
}

/// What is wrong; empty where nothing is.
std::string fault_of_form(const FormResults& made, const FormResults& right) {
  if (made.size() != right.size()) return "another number of results";
  for (size_t i = 0; i < right.size(); ++i) {
    if (is_near(made[i], right[i])) continue;
    if (made[i].dim() == 4 && is_near(made[i].permute({0, 3, 1, 2}), right[i])) continue;
    std::ostringstream text;
    text << "result " << i << " is\n" << made[i] << "\nexpected\n" << right[i];
    return text.str();
  }
  return "";
}

bool names(const char* list, const std::string& one) {
  return std::string(list).find(one) != std::string::npos;
}

/// Zeros of both signs, infinities and NaN among the numbers.
at::Tensor with_limits(Draw& dice, const at::Tensor& x) {
  constexpr float kMany = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> ends = {0.0F, -0.0F, kMany, -kMany, kNan};
  at::Tensor made = x.clone().reshape({-1});
  for (int64_t i = 0; i < made.numel(); ++i) {
    if (dice.between(0, 2) == 0) made[i] = ends[static_cast<size_t>(dice.between(0, 4))];
  }
  return made.reshape(x.sizes());
}

/// Of the sum of all results; undefined where LibTorch has none.
at::Tensor gradient_of(const std::function<FormResults(const at::Tensor&)>& run, const at::Tensor& x) {
  const at::AutoGradMode with_gradients(true);
  const at::Tensor leaf = x.detach().clone().requires_grad_(true);
  at::Tensor total;
  for (const at::Tensor& result : run(leaf)) {
    if (result.requires_grad()) total = total.defined() ? total + result.sum() : result.sum();
  }
  try {
    return total.defined() ? torch::autograd::grad({total}, {leaf})[0] : at::Tensor();
  } catch (const c10::Error&) {
    return {};
  }
}

/// The graph is what trains: its gradients are the module's, bit for bit.
void expect_same_gradients(const FormModule& module, const FrontendCall& call) {
  const at::Tensor ours = gradient_of([&](const at::Tensor&x) { return module->forward_all({x}); }, call.x),
                   right = gradient_of(call.body, call.x);
  ASSERT_EQ(ours.defined(), right.defined());
  if (right.defined()) {
    EXPECT_TRUE(torch::allclose(ours, right, 0, 0, /*equal_nan=*/true)) << ours << right;
  }
}

/// At least 4; ULP_RANDOM_NETWORKS=N tries more draws of each op.
int64_t draws_of_each() {
  const char* wanted = std::getenv("ULP_RANDOM_NETWORKS");
  return wanted == nullptr ? 4 : std::max(4, std::atoi(wanted) / 10);
}

/// Draws that each form could have: none of those of `none`, some but at least half of those of `some`, else
/// all.
void expect_counts(const FrontendOp& op, const std::map<std::string, int64_t>& written) {
  const int64_t draws = draws_of_each();
  std::ostringstream counts;
  for (const auto& [form, count] : written) counts << " " << form << " " << count;
  for (const EveryForm& form : kEveryForm) {
    const bool none = names(op.none, form.name), some = names(op.some, form.name);
    const int64_t least = none ? 0 : some ? (draws + 1) / 2 : draws, most = none ? 0 : draws - (some ? 1 : 0);
    const int64_t count = written.at(form.name);
    EXPECT_TRUE(count >= least && count <= most)
        << form.name << " of " << op.name << " has " << count << " of " << draws << " draws, expected "
        << least << " to " << most << "; all:" << counts.str();
  }
}

void expect_every_form(std::span<const FrontendOp> ops) {
  const torch::NoGradGuard no_grad;
  for (const FrontendOp& op : ops) {
    std::map<std::string, int64_t> written;
    for (const EveryForm& form : kEveryForm) written[form.name] = 0;
    for (int64_t seed = 0; seed < draws_of_each(); ++seed) {
      torch::manual_seed(seed);
      Draw dice(static_cast<uint64_t>(seed) + 1);
      const FrontendCall call = op.draw(dice);
      SCOPED_TRACE(std::string(op.name) + " " + std::to_string(seed) + ": " + call.words);
      const FormModule module = captured_call(call);
      expect_same_gradients(module, call);
      const at::Tensor limits = with_limits(dice, call.x);
      for (const EveryForm& form : kEveryForm) {
        try {
          for (const at::Tensor& x :
               names(op.finite, form.name) ? FormResults{call.x} : FormResults{call.x, limits})
            EXPECT_EQ(fault_of_form(form.run(module, x), call.body(x)), "") << form.name << " of\n" << x;
          ++written[form.name];
        } catch (const Error& error) {
          EXPECT_TRUE(names(op.none, form.name) || names(op.some, form.name)) << form.name << error.what();
          EXPECT_NE(std::string(error.what()).find("aten::"), std::string::npos) << error.what();
        } catch (const std::exception& error) {
          ADD_FAILURE() << form.name << ": " << error.what();
        }
      }
    }
    expect_counts(op, written);
  }
}

}  // namespace

TEST(EveryForm, HasOrders) {
  expect_every_form(frontend_orders());
}
TEST(EveryForm, HasFunctions) {
  expect_every_form(frontend_functions());
}
TEST(EveryForm, HasMoves) {
  expect_every_form(frontend_moves());
}
TEST(EveryForm, HasProducts) {
  expect_every_form(frontend_products());
}

}  // namespace ulp::test
