#include "ulp/train/stepper.h"

#include <torch/nn/module.h>
#include <torch/optim.h>
#include <torch/types.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "ulp/amp/optimizer/fused_step.h"
#include "ulp/amp/scaling/make_scaler.h"
#include "ulp/base/error.h"
#include "ulp/prune/masks/hold_masks.h"
#include "ulp/quant/recipe.h"

namespace ulp::train {

namespace {

namespace optim = torch::optim;

amp::UpdateRule update_rule(const TrainOptions& options) {
  const double rate = options.peak_rate(), decay = options.decay();
  switch (options.optimizer) {
    case Optimizer::adam:
      return amp::AdamRule{.lr = rate, .weight_decay = decay};
    case Optimizer::adamw:
      return amp::AdamWRule{.lr = rate, .weight_decay = decay};
    case Optimizer::sgd:
      break;
  }
  return amp::SgdRule{
      .lr = rate, .momentum = options.momentum, .weight_decay = decay, .nesterov = options.momentum > 0};
}

/// What an optimizer trains: weights whose signs alone count get no weight decay, which would only turn them more often.
struct Trained {
  std::vector<at::Tensor> parameters, latent;
};

/// LibTorch's optimizer of a rule.
struct TorchOptimizer {
  Trained trained;

  std::unique_ptr<optim::Optimizer> operator()(const amp::SgdRule& rule) const {
    return make<optim::SGD>(optim::SGDOptions(rule.lr)
                                .momentum(rule.momentum)
                                .dampening(rule.dampening)
                                .weight_decay(rule.weight_decay)
                                .nesterov(rule.nesterov));
  }
  std::unique_ptr<optim::Optimizer> operator()(const amp::AdamRule& rule) const {
    return make<optim::Adam>(with_moments(optim::AdamOptions(rule.lr), rule));
  }
  std::unique_ptr<optim::Optimizer> operator()(const amp::AdamWRule& rule) const {
    return make<optim::AdamW>(with_moments(optim::AdamWOptions(rule.lr), rule));
  }

 private:
  template <typename Kind, typename Options>
  std::unique_ptr<optim::Optimizer> make(const Options& options) const {
    auto optimizer = std::make_unique<Kind>(trained.parameters, options);
    if (trained.latent.empty()) return optimizer;
    optimizer->add_param_group(optim::OptimizerParamGroup(trained.latent));
    // Not given with the group: a 0 there counts as left out, and the first group's decay is taken.
    static_cast<Options&>(optimizer->param_groups().back().options()).weight_decay(0);
    return optimizer;
  }
  template <typename Options, typename Rule>
  static Options with_moments(Options options, const Rule& rule) {
    return options.betas({rule.beta1, rule.beta2}).eps(rule.eps).weight_decay(rule.weight_decay);
  }
};

bool has(const std::vector<at::Tensor>& tensors, const at::Tensor& one) {
  return std::ranges::any_of(tensors, [&](const at::Tensor& other) { return other.is_same(one); });
}

/// The parameters, tied ones once, but for the latent weights.
std::vector<at::Tensor> parameters_of(const torch::nn::Module& model, const std::vector<at::Tensor>& latent) {
  std::vector<at::Tensor> found;
  for (const at::Tensor& one : model.parameters()) {
    if (!has(found, one) && !has(latent, one)) found.push_back(one);
  }
  return found;
}

/// Those whose signs the model computes with (quant::latent_weights), each once.
std::vector<at::Tensor> latent_weights_of(const torch::nn::Module& model) {
  std::vector<at::Tensor> found;
  const BinaryTraining* binary = binary_training.find();
  if (binary == nullptr) return found;
  const auto named = model.named_parameters();
  for (const std::string& name : binary->latent_weights(model)) {
    const at::Tensor* one = named.find(name);
    if (one != nullptr && !has(found, *one)) found.push_back(*one);
  }
  return found;
}

/// The parameters of the whole model that TrainOptions::fp32_moments names; an error for a pattern that names none.
std::vector<at::Tensor> with_fp32_moments(const torch::nn::Module& model, const std::string& patterns) {
  std::vector<at::Tensor> found;
  std::istringstream text(patterns);
  for (std::string pattern; std::getline(text, pattern, ',');) {
    const size_t before = found.size();
    for (const auto& parameter : model.named_parameters()) {
      if (quant::matches_module(pattern, parameter.key())) found.push_back(parameter.value());
    }
    if (found.size() == before)
      fail("train.Trainer", "expected names of parameters or paths of modules for fp32_moments, got '",
           pattern, "', which is that of none");
  }
  return found;
}

/// Those of a part that have the names of such parameters of the whole model.
std::vector<at::Tensor> of_same_names(const torch::nn::Module& part, const torch::nn::Module& whole,
                                      const std::vector<at::Tensor>& of_whole) {
  const auto own = part.named_parameters();
  std::vector<at::Tensor> found;
  for (const auto& one : whole.named_parameters()) {
    const at::Tensor* same = has(of_whole, one.value()) ? own.find(one.key()) : nullptr;
    if (same != nullptr && !has(found, *same)) found.push_back(*same);
  }
  return found;
}

std::vector<at::Tensor> with_fp32_moments(const Task& task, const std::string& patterns) {
  if (!task.parted) return with_fp32_moments(*task.model, patterns);
  return of_same_names(*task.model, *task.parted->whole, with_fp32_moments(*task.parted->whole, patterns));
}

/// What the gradients of all parts of a model come to; null where each process has all of it.
std::function<amp::GradientTotal()> measure_of(const Task& task) {
  if (!task.parted) return nullptr;
  return [parted = task.parted] { return parted->total_gradients(); };
}

std::vector<amp::FusedGroup> fused_groups(Trained trained, const TrainOptions& options,
                                          const std::vector<at::Tensor>& fp32_moments) {
  const amp::UpdateRule rule = update_rule(options);
  std::vector<amp::FusedGroup> groups = {{std::move(trained.parameters), rule,
                                          options.master_weights().value_or(amp::MasterWeights::fp32),
                                          options.moments}};
  if (!trained.latent.empty()) {
    groups.push_back({std::move(trained.latent), rule, groups[0].masters, groups[0].moments});
    std::visit([](auto& own) { own.weight_decay = 0; }, groups[1].rule);
  }
  return amp::with_fp32_moments(groups, fp32_moments);
}

bool is_told(const amp::OffloadOptions& offload) {
  return offload.to_host || !offload.state_folder.empty();
}

std::unique_ptr<optim::Optimizer> make_optimizer(Trained trained, const TrainOptions& options, bool fused,
                                                 const std::vector<at::Tensor>& fp32_moments,
                                                 const amp::OffloadOptions& offload) {
  const bool wide = options.moments == amp::MomentFormat::fp32;
  if (!options.master_weights() && !options.clip && !fused && wide && !is_told(offload))
    return std::visit(TorchOptimizer{std::move(trained)}, update_rule(options));
  return std::make_unique<amp::FusedOptimizer>(fused_groups(std::move(trained), options, fp32_moments),
                                               options.seed, offload);
}

/// Null where nothing is shared. Shares know neither masks nor bounds of weights.
std::unique_ptr<OptimizerShare> make_sharded(ModelReplica* replica, const Task& task, Trained trained,
                                             const TrainOptions& options, bool masks) {
  const distributed::ZeroStage zero = task.parallel.zero;
  if (replica == nullptr || zero == distributed::ZeroStage::off) return nullptr;
  if (masks || !trained.latent.empty()) {
    fail("train.Trainer", "expected no shares of the training state (zero 0) for a network with ",
         masks ? "masks" : "binary weights", ", got zero ", enum_name(zero));
  }
  if (is_told(task.offload)) {
    fail("train.Trainer", "expected the optimizer's state in memory where processes share it (zero ",
         enum_name(zero), "), got it offloaded");
  }
  return replica->share(fused_groups(std::move(trained), options, /*fp32_moments=*/{}), options.seed);
}

}  // namespace

Stepper::Stepper(const Task& task, const TrainOptions& options, int64_t total_steps, ModelReplica* replica)
    : masks_(task.masks),
      latent_(latent_weights_of(*task.model)),
      sharded_(make_sharded(replica, task, {parameters_of(*task.model, latent_), latent_}, options,
                            !masks_of(*task.model).empty())),
      parted_(task.parted),
      options_(options),
      own_(sharded_
               ? nullptr
               : make_optimizer({parameters_of(*task.model, latent_), latent_}, options,
                                !masks_of(*task.model).empty() || task.parted != nullptr || options.compile,
                                with_fp32_moments(task, options.fp32_moments), task.offload)),
      optimizer_(sharded_ ? &sharded_->optimizer() : own_.get()),
      fused_(dynamic_cast<amp::FusedOptimizer*>(optimizer_)),
      scaler_(amp::make_scaler(options.used_scaler(), {.init_scale = options.init_scale,
                                                       .growth_interval = options.growth_interval})),
      clip_(options.clip),
      measure_(measure_of(task)),
      peak_rate_(options.peak_rate()),
      schedule_(*optimizer_, amp::make_schedule_rule(options.schedule, total_steps, options.warmup)) {
  hold_masks(*task.model);
}

Stepper::~Stepper() = default;

std::vector<prune::ParameterMask> Stepper::masks_of(const torch::nn::Module& model) const {
  std::vector<prune::ParameterMask> masks = masks_;
  for (const auto& module : model.named_modules("", /*include_self=*/true)) {
    const auto* graph = dynamic_cast<const graph::GraphModule*>(module.value().get());
    if (graph == nullptr) continue;
    for (prune::ParameterMask& mask : prune::masks(graph->graph())) {
      if (!module.key().empty()) mask.parameter = module.key() + '.' + mask.parameter;
      masks.push_back(std::move(mask));
    }
  }
  return masks;
}

void Stepper::hold_masks(const torch::nn::Module& model) {
  const std::vector<prune::ParameterMask> masks = masks_of(model);
  if (fused_ != nullptr && !sharded_) {
    prune::hold_masks(*fused_, model, masks);
  } else if (!masks.empty()) {
    fail("train.Trainer.hold_masks", "expected masks from the start of training, got the first ones later");
  }
}

void Stepper::zero_grad() {
  if (compiled_ != nullptr) compiled_->zero_grad();
  if (sharded_) return sharded_->zero_grad();
  optimizer_->zero_grad();
}

void Stepper::backward(const at::Tensor& loss, int64_t of) {
  scaler_.scale(of == 1 ? loss : loss / of).backward();
}

double Stepper::loss_factor(int64_t of) {
  return scaler_.scale(at::ones({})).item<double>() / static_cast<double>(of);
}

/// The step of LibTorch's optimizer.
amp::StepResult Stepper::torch_step(bool found_inf) {
  if (!found_inf) return scaler_.step(*optimizer_);
  scaler_.unscale_(*optimizer_);
  scaler_.end_step(*optimizer_, amp::StepResult::skipped_nonfinite);
  return amp::StepResult::skipped_nonfinite;
}

Update Stepper::step(bool found_inf) {
  Update update;
  if (compiled_ != nullptr) {
    const amp::FusedStepResult done = compiled_->apply();
    update.result = done.result;
    if (clip_) update.grad_norm = done.grad_norm;
  } else if (fused_ != nullptr) {
    const amp::FusedStepOptions how{.max_norm = clip_, .found_inf = found_inf, .measure = measure_};
    const amp::FusedStepResult done =
        sharded_ ? sharded_->step(&scaler_, how) : amp::fused_step(*fused_, &scaler_, how);
    update.result = done.result;
    if (clip_) update.grad_norm = done.grad_norm;
  } else {
    update.result = torch_step(found_inf);
  }
  if (scaler_.is_enabled()) scaler_.update();
  if (!amp::is_skipped(update.result)) clip_latent_weights();
  schedule_.advance(update.result);
  return update;
}

/// As quant::clip_latent_weights(), masters included.
void Stepper::clip_latent_weights() {
  const at::NoGradGuard no_grad;
  for (at::Tensor& weight : latent_) {
    if (fused_ != nullptr) {
      fused_->clamp(weight, -1, 1);
    } else {
      weight.clamp_(-1, 1);
    }
  }
}

void Stepper::add_to(io::CheckpointParts& parts, bool saving, bool in_shares) {
  if (sharded_) whole_ = saving && !in_shares ? sharded_->gather() : sharded_->whole();
  if (parted_) {
    const bool holds = !saving || parted_->root() != nullptr;
    whole_ = holds ? optimizer_of_whole() : nullptr;
    if (saving) parted_->gather(*fused_, whole_.get());
  }
  parts.optimizer = sharded_ || parted_ ? whole_.get() : optimizer_;
  parts.scaler = scaler_.state_dict();
  parts.schedule = schedule_.state_dict();
  if (parted_ && whole_) parts.schedule = schedule_of(whole_->param_groups().size(), parts.schedule);
}

std::unique_ptr<amp::FusedOptimizer> Stepper::optimizer_of_whole() const {
  torch::nn::Module& whole = *parted_->whole;
  const std::vector<at::Tensor> latent = latent_weights_of(whole);
  auto optimizer =
      std::make_unique<amp::FusedOptimizer>(fused_groups({parameters_of(whole, latent), latent}, options_,
                                                         with_fp32_moments(whole, options_.fp32_moments)),
                                            fused_->seed());
  for (auto& group : optimizer->param_groups())
    group.options().set_lr(fused_->param_groups()[0].options().get_lr());
  return optimizer;
}

amp::ScheduleState Stepper::schedule_of(size_t groups, amp::ScheduleState state) const {
  const std::string entry = "base_lr.";
  const double rate = state[entry + "0"];
  std::erase_if(state, [&](const auto& one) { return one.first.starts_with(entry); });
  for (size_t g = 0; g < groups; ++g) state[entry + std::to_string(g)] = rate;
  return state;
}

std::vector<std::string> Stepper::save_shares(const std::filesystem::path& path, int64_t step) const {
  if (!sharded_) return {};
  return sharded_->save(path, step);
}

void Stepper::restore(const io::CheckpointParts& parts, const std::filesystem::path& path,
                      const std::vector<std::string>& shares) {
  if (sharded_) sharded_->scatter(*std::exchange(whole_, nullptr));
  if (parted_) {
    parted_->scatter();
    parted_->scatter(*std::exchange(whole_, nullptr), *fused_);
  }
  if (!shares.empty() && sharded_) sharded_->load(path, shares);
  if (!shares.empty() && !sharded_ && fused_ != nullptr)
    several_processes.functions("train.Trainer.resume").load_shards(*fused_, path, shares);
  try {
    scaler_.load_state_dict(parts.scaler);
    schedule_.load_state_dict(parted_ ? schedule_of(fused_->param_groups().size(), parts.schedule)
                                      : parts.schedule);
  } catch (const Error& error) {
    fail_file("train.Trainer.resume", "the loss scale or the schedule in '", path.string(),
              "': ", error.what());
  }
}

}  // namespace ulp::train
