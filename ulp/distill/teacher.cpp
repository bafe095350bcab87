#include "ulp/distill/teacher.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "ulp/amp/autocast/autocast.h"
#include "ulp/base/error.h"
#include "ulp/distill/tap.h"
#include "ulp/graph/module_copy.h"
#include "ulp/lower/evaluate.h"

namespace ulp::distill {

namespace {

class GraphTeacher final : public Teacher {
 public:
  GraphTeacher(const graph::GraphModule& model, const std::vector<std::string>& places,
               amp::PrecisionName precision)
      : precision_(*precision), name_(precision.name()), count_(places.size()) {
    if (precision_.parameter_dtype)
      fail("distill.graph_teacher", "expected a precision with fp32 parameters, got ", name_);
    const TappedModel tapped(model, places, Keep::taps);
    module_ = graph::copy_of(*tapped.module());
    module_->eval();
  }

  std::vector<at::Tensor> values(const TeacherBatch& batch) override {
    const at::NoGradGuard no_grad;
    const c10::DeviceType device = batch.inputs.empty() ? c10::kCPU : batch.inputs[0].device().type();
    const auto guard = amp::autocast_for(precision_, device);
    std::vector<at::Tensor> inputs;
    for (const at::Tensor& input : batch.inputs)
      inputs.push_back(input.is_floating_point() ? input.to(torch::kFloat) : input);
    return module_->forward_all(inputs);
  }
  size_t count() const override { return count_; }
  std::string description() const override { return "graph in " + name_; }

 private:
  amp::Precision precision_;
  std::string name_;
  size_t count_;
  std::shared_ptr<graph::GraphModule> module_;
};

class EngineTeacher final : public Teacher {
 public:
  EngineTeacher(std::shared_ptr<runtime::Engine> engine, const std::vector<std::string>& places)
      : engine_(std::move(engine)) {
    for (const std::string& place : places) outputs_.push_back(output_at(place));
  }

  std::vector<at::Tensor> values(const TeacherBatch& batch) override {
    const std::lock_guard lock(mutex_);
    const std::vector<at::Tensor> all = run_engine_all(*engine_, batch.inputs);
    std::vector<at::Tensor> values;
    for (const size_t i : outputs_) values.push_back(all[i]);
    return values;
  }
  size_t count() const override { return outputs_.size(); }
  std::string description() const override { return "engine"; }

 private:
  size_t output_at(const std::string& place) const {
    const auto& outputs = engine_->outputs();
    if (place.empty() || place == "output") return 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (place == outputs[i].name || place == "output:" + std::to_string(i)) return i;
    }
    std::string names;
    for (const auto& output : outputs) names += (names.empty() ? "" : ", ") + output.name;
    fail("distill.engine_teacher", "expected an output of the engine (", names, "), got '", place,
         "'; an engine has no values inside");
  }

  std::shared_ptr<runtime::Engine> engine_;
  std::vector<size_t> outputs_;
  std::mutex mutex_;
};

class Ensemble final : public Teacher {
 public:
  Ensemble(std::vector<std::shared_ptr<Teacher>> members, std::vector<double> weights, double temperature)
      : members_(std::move(members)), weights_(std::move(weights)), temperature_(temperature) {}

  std::vector<at::Tensor> values(const TeacherBatch& batch) override {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> logarithms;
    for (size_t i = 0; i < members_.size(); ++i) {
      const at::Tensor logits = members_[i]->values(batch).at(0).to(torch::kFloat);
      if (i > 0 && logits.sizes() != logarithms[0].sizes()) {
        fail("distill.ensemble", "expected members with logits of shape ", logarithms[0].sizes(), ", got ",
             logits.sizes(), " of member ", i);
      }
      logarithms.push_back(at::log_softmax(logits / temperature_, -1) + std::log(weights_[i]));
    }
    return {at::logsumexp(at::stack(logarithms), {0}) * temperature_};
  }
  size_t count() const override { return 1; }
  std::string description() const override { return "ensemble of " + std::to_string(members_.size()); }

 private:
  std::vector<std::shared_ptr<Teacher>> members_;
  std::vector<double> weights_;  // sum to 1
  double temperature_;
};

}  // namespace

Teacher::~Teacher() = default;

std::shared_ptr<Teacher> graph_teacher(const graph::GraphModule& model,
                                       const std::vector<std::string>& places, amp::PrecisionName precision) {
  return std::make_shared<GraphTeacher>(model, places, precision);
}

std::shared_ptr<Teacher> engine_teacher(std::shared_ptr<runtime::Engine> engine,
                                        const std::vector<std::string>& places) {
  if (engine == nullptr) fail("distill.engine_teacher", "expected an engine, got null");
  return std::make_shared<EngineTeacher>(std::move(engine), places);
}

std::shared_ptr<Teacher> ensemble(std::vector<std::shared_ptr<Teacher>> members, std::vector<double> weights,
                                  double temperature) {
  constexpr const char* kWhere = "distill.ensemble";
  if (members.empty()) fail(kWhere, "expected at least one member, got none");
  for (const auto& member : members) {
    if (member == nullptr || member->count() != 1) fail(kWhere, "expected members with one value each");
  }
  if (weights.empty()) weights.assign(members.size(), 1.0);
  if (weights.size() != members.size())
    fail(kWhere, "expected ", members.size(), " weights, got ", weights.size());
  double sum = 0;
  for (const double weight : weights) {
    if (!(weight >= 0) || !std::isfinite(weight)) fail(kWhere, "expected weights >= 0, got ", weight);
    sum += weight;
  }
  if (!(sum > 0)) fail(kWhere, "expected weights with a sum > 0, got ", sum);
  if (!(temperature > 0)) fail(kWhere, "expected a temperature > 0, got ", temperature);
  for (double& weight : weights) weight /= sum;
  return std::make_shared<Ensemble>(std::move(members), std::move(weights), temperature);
}

}  // namespace ulp::distill
