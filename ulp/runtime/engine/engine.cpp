#include "ulp/runtime/engine/engine.h"

#include "ulp/base/error.h"
#include "ulp/runtime/engine/model.h"

namespace ulp::runtime {

Engine::Engine(std::shared_ptr<const Model> model, const EngineOptions& options)
    : model_(std::move(model)),
      own_(model_, {.threads = options.threads,
                    .parallel = options.parallel,
                    .max_arena_bytes = options.max_arena_bytes,
                    .own_threads = options.own_threads}) {}
Engine::Engine(const std::filesystem::path& path, const EngineOptions& options)
    : Engine(std::make_shared<const Model>(VerifiedPlan::load(path), options), options) {}
Engine::Engine(const Plan& plan, const EngineOptions& options)
    : Engine(std::make_shared<const Model>(VerifiedPlan::check(plan), options), options) {}
Engine::Engine(std::span<const std::byte> file, const EngineOptions& options)
    : Engine(std::make_shared<const Model>(VerifiedPlan::load(file), options), options) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

const std::shared_ptr<const Model>& Engine::model() const {
  if (!model_) fail("runtime.Engine", "expected an engine, got one that was moved from");
  return model_;
}

Context::Context(const Engine& engine, const ContextOptions& options) : Context(engine.model(), options) {}

Context& Engine::own() {
  static_cast<void>(model());
  return own_;
}
const Context& Engine::own() const {
  static_cast<void>(model());
  return own_;
}

const std::vector<TensorInfo>& Engine::inputs() const {
  return own().inputs();
}
const std::vector<TensorInfo>& Engine::outputs() const {
  return own().outputs();
}
size_t Engine::constant_bytes() const {
  return model()->constant_bytes();
}
std::string Engine::isa() const {
  return kernels::to_string(model()->isa());
}
size_t Engine::arena_bytes() const {
  return own().arena_bytes();
}
int Engine::threads() const {
  return own().threads();
}
const std::vector<DynamicDimension>& Engine::free() const {
  return model()->free();
}
const BatchRange& Engine::batch_range() const {
  return model()->batch_range();
}
const std::string& Engine::decoding_dimension() const {
  return model()->decoding_dimension();
}
std::map<std::string, int64_t> Engine::sizes_for(std::span<const std::vector<int64_t>> shapes) const {
  return model()->sizes_for(shapes);
}
void Engine::set_sizes(const std::map<std::string, int64_t>& sizes) {
  own().set_sizes(sizes);
}
int64_t Engine::position() const {
  return own().position();
}
void Engine::rewind(int64_t position) {
  own().rewind(position);
}
void Engine::reserve(int64_t batch) {
  own().reserve(batch);
}
void Engine::run(int64_t batch, std::span<const void* const> inputs, std::span<void* const> outputs) {
  own().run(batch, inputs, outputs);
}
std::vector<StepProfile> Engine::profile(int64_t batch, std::span<const void* const> inputs,
                                         std::span<void* const> outputs) {
  return own().profile(batch, inputs, outputs);
}

}  // namespace ulp::runtime
