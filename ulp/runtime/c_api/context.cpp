// The functions of the C API on contexts.
#include <map>

#include "ulp/runtime/c_api/handles.h"
#include "ulp/runtime/c_api/sized_struct.h"
#include "ulp/runtime/engine/one_call.h"
#include "ulp/runtime/plan/step_view.h"

namespace ulp::runtime::c_api {
namespace {

constexpr ErrorCode kBadShape = ErrorCode::bad_shape;

/// call(function, context) while no other call uses the context.
template <typename Call>
ulp_status with_context(const char* function, ulp_context* context, const Call& call) {
  return guarded(function, [&](const char* where) {
    expect_pointer(where, context, "context");
    const OneCall call_of_one(context->busy, [&] {
      refuse(where,
             "expected one call at a time, got one while another thread uses this context; make one for each "
             "thread");
    });
    call(where, context->context);
  });
}

/// What the call says of the context, into `*result`.
template <typename Result, typename Call>
ulp_status ask(const char* function, ulp_context* context, Result* result, const char* name,
               const Call& call) {
  return with_context(function, context, [&](const char* where, Context& asked) {
    expect_pointer(where, result, name);
    *result = static_cast<Result>(call(where, asked));
  });
}

void expect_batch(const char* function, int64_t batch) {
  if (batch < 1) refuse(kBadShape, function, "expected a batch of at least 1, got ", batch);
}

/// Bytes of a tensor; BadArgument (out_of_memory) where no memory can hold them.
size_t bytes_of(const char* function, const TensorInfo& tensor, int64_t batch) {
  expect_batch(function, batch);
  return blame_arguments([&] { return byte_count(tensor, batch); });
}

size_t bytes_at(const char* function, const std::vector<TensorInfo>& tensors, const char* kind, size_t index,
                int64_t batch) {
  expect_index(function, index, tensors.size(), kind);
  return bytes_of(function, tensors[index], batch);
}

/// The pointers of buffers that are as the engine wants them.
template <typename Buffer, typename Pointer>
void take_buffers(const char* function, const char* kind, const std::vector<TensorInfo>& tensors,
                  int64_t batch, const Buffer* buffers, size_t count, std::vector<Pointer>& pointers) {
  if (count != tensors.size())
    refuse(kBadShape, function, "expected ", tensors.size(), " ", kind, ", got ", count);
  if (count > 0) expect_pointer(function, buffers, kind);
  for (size_t i = 0; i < count; ++i) {
    const TensorInfo& tensor = tensors[i];
    const auto describe = [&](ErrorCode code, const auto&... said) {
      refuse(code, function, "expected ", kind, "[", i, "] '", tensor.name, "' ", said...);
    };
    const size_t bytes = bytes_of(function, tensor, batch);
    if (buffers[i].bytes != bytes)
      describe(kBadShape, "to have ", bytes, " bytes (", to_string(tensor.type), ", batch ", batch, "), got ",
               buffers[i].bytes);
    if (buffers[i].data == nullptr) describe(ErrorCode::bad_argument, "to have data, got NULL");
    const auto width = static_cast<uintptr_t>(element_bytes(tensor.type));
    if (reinterpret_cast<uintptr_t>(buffers[i].data) % width != 0)
      describe(ErrorCode::bad_argument, "to begin at a multiple of ", width,
               " bytes, as its elements do, got ", buffers[i].data);
    pointers[i] = buffers[i].data;
  }
}

template <typename Buffer>
bool overlap(const Buffer& a, const ulp_buffer& b) {
  const auto first = reinterpret_cast<uintptr_t>(a.data), second = reinterpret_cast<uintptr_t>(b.data);
  return first < second + b.bytes && second < first + a.bytes;
}

/// What an output overlaps is overwritten before it is read.
void expect_apart(const char* function, const ulp_const_buffer* inputs, size_t input_count,
                  const ulp_buffer* outputs, size_t output_count) {
  for (size_t o = 0; o < output_count; ++o) {
    for (size_t i = 0; i < input_count; ++i)
      if (overlap(inputs[i], outputs[o]))
        refuse(function, "expected buffers that do not overlap, got outputs[", o, "] on inputs[", i, "]");
    for (size_t other = 0; other < o; ++other)
      if (overlap(outputs[other], outputs[o]))
        refuse(function, "expected buffers that do not overlap, got outputs[", o, "] on outputs[", other,
               "]");
  }
}

/// What a caller gave, where the number that stands for the batch is nothing but that number.
std::string numbers_text(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (const int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::vector<std::vector<int64_t>> read_shapes(const char* function, const ulp_shape* shapes, size_t count,
                                              const std::vector<TensorInfo>& inputs) {
  if (count != inputs.size())
    refuse(kBadShape, function, "expected the shapes of ", inputs.size(), " inputs, got ", count);
  if (count > 0) expect_pointer(function, shapes, "shapes");
  std::vector<std::vector<int64_t>> read;
  for (size_t i = 0; i < count; ++i) {
    if (shapes[i].rank != inputs[i].shape.size())
      refuse(kBadShape, function, "expected inputs[", i, "] '", inputs[i].name, "' with ",
             inputs[i].shape.size(), " dimensions, ", shape_text(inputs[i]), ", got ", shapes[i].rank);
    if (shapes[i].rank > 0) expect_pointer(function, shapes[i].sizes, "shapes[].sizes");
    read.emplace_back(shapes[i].sizes, shapes[i].sizes + shapes[i].rank);
  }
  return read;
}

/// Whether a dimension of this size is what the tensor has there, whatever the numbers.
bool is_size(const TensorInfo& tensor, size_t dim, int64_t batch, int64_t got) {
  int64_t expected = tensor.shape[dim];
  if (expected == kBatch && __builtin_mul_overflow(batch, tensor.times, &expected)) return false;
  return got >= 1 && got == expected;
}

/// The batch of inputs of these shapes, whose free dimensions are set.
int64_t batch_of(const char* function, const std::vector<std::vector<int64_t>>& shapes,
                 const std::vector<TensorInfo>& inputs) {
  int64_t batch = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorInfo& input = inputs[i];
    for (size_t dim = 0; dim < shapes[i].size(); ++dim) {
      const int64_t got = shapes[i][dim];
      if (input.shape[dim] == kBatch && batch == 0 && got % input.times == 0) batch = got / input.times;
      if (is_size(input, dim, batch, got)) continue;
      refuse(kBadShape, function, "expected inputs[", i, "] '", input.name, "' to be ", shape_text(input),
             batch > 0 ? " with batch " + std::to_string(batch) : " with a batch of at least 1", ", got ",
             numbers_text(shapes[i]));
    }
  }
  return batch == 0 ? 1 : batch;
}

/// Throws Error for a name that no free dimension has, and for a size that it may not have.
void check_size(const Engine& engine, const Context& context, const char* name, int64_t size) {
  static_cast<void>(context.size(name));
  for (const DynamicDimension& free : engine.free())
    if (free.name == name) free.check(size, "runtime.Engine.set_sizes");
}

std::map<std::string, int64_t> present_sizes(const Engine& engine, const Context& context) {
  std::map<std::string, int64_t> sizes;
  for (const DynamicDimension& free : engine.free()) sizes[free.name] = context.size(free.name);
  return sizes;
}

}  // namespace
}  // namespace ulp::runtime::c_api

using namespace ulp::runtime;
using namespace ulp::runtime::c_api;

ulp_status ulp_context_create(const ulp_engine* engine, const ulp_context_options* options,
                              ulp_context** context) {
  return guarded(__func__, [&](const char* where) {
    expect_pointer(where, context, "context");
    *context = nullptr;
    expect_pointer(where, engine, "engine");
    const ulp_context_options read = read_options(where, options);
    const std::shared_ptr<const Loaded>& loaded = engine->loaded;
    if (read.threads < 0)
      refuse(ulp::ErrorCode::bad_option, where,
             "expected options->threads to be 0 (one for each core) or more, got ", read.threads);
    if ((read.flags & ~uint64_t{ULP_OWN_THREADS}) != 0)
      refuse(ulp::ErrorCode::bad_option, where,
             "expected options->flags to be 0 or ULP_OWN_THREADS (1), got ", read.flags);
    ContextOptions made;
    made.threads = read.threads;
    made.own_threads = (read.flags & ULP_OWN_THREADS) != 0;
    made.max_arena_bytes = read.max_arena_bytes;
    *context = new ulp_context{loaded, Context(loaded->engine, made),
                               std::vector<const void*>(loaded->engine.inputs().size()),
                               std::vector<void*>(loaded->engine.outputs().size())};
  });
}

void ulp_context_destroy(ulp_context* context) {
  delete context;
}

ulp_status ulp_context_set_size(ulp_context* context, const char* name, int64_t size) {
  return with_context(__func__, context, [&](const char* where, Context& set) {
    expect_pointer(where, name, "name");
    blame_arguments([&] { check_size(context->loaded->engine, set, name, size); });
    set.set_sizes({{name, size}});
  });
}

ulp_status ulp_context_size(ulp_context* context, const char* name, int64_t* size) {
  return ask(__func__, context, size, "size", [&](const char* where, const Context& asked) {
    expect_pointer(where, name, "name");
    return blame_arguments([&] { return asked.size(name); });
  });
}

ulp_status ulp_context_set_input_shapes(ulp_context* context, const ulp_shape* shapes, size_t count,
                                        int64_t* batch) {
  return ask(__func__, context, batch, "batch", [&](const char* where, Context& set) {
    const Engine& engine = context->loaded->engine;
    const std::vector<std::vector<int64_t>> read = read_shapes(where, shapes, count, engine.inputs());
    const std::map<std::string, int64_t> before = present_sizes(engine, set);
    set.set_sizes(blame_arguments([&] { return engine.sizes_for(read); }));
    try {
      return batch_of(where, read, set.inputs());
    } catch (...) {
      set.set_sizes(before);
      throw;
    }
  });
}

ulp_status ulp_context_input(ulp_context* context, size_t index, ulp_tensor_info* info) {
  return with_context(__func__, context, [&](const char* where, const Context& asked) {
    write_tensor_info(where, asked.inputs(), context->loaded->input_names, "inputs", index, info);
  });
}

ulp_status ulp_context_output(ulp_context* context, size_t index, ulp_tensor_info* info) {
  return with_context(__func__, context, [&](const char* where, const Context& asked) {
    write_tensor_info(where, asked.outputs(), context->loaded->output_names, "outputs", index, info);
  });
}

ulp_status ulp_context_input_bytes(ulp_context* context, size_t index, int64_t batch, size_t* bytes) {
  return ask(__func__, context, bytes, "bytes", [&](const char* where, const Context& asked) {
    return bytes_at(where, asked.inputs(), "inputs", index, batch);
  });
}

ulp_status ulp_context_output_bytes(ulp_context* context, size_t index, int64_t batch, size_t* bytes) {
  return ask(__func__, context, bytes, "bytes", [&](const char* where, const Context& asked) {
    return bytes_at(where, asked.outputs(), "outputs", index, batch);
  });
}

ulp_status ulp_context_reserve(ulp_context* context, int64_t batch) {
  return with_context(__func__, context, [&](const char* where, Context& set) {
    expect_batch(where, batch);
    set.reserve(batch);
  });
}

ulp_status ulp_context_run(ulp_context* context, int64_t batch, const ulp_const_buffer* inputs,
                           size_t input_count, const ulp_buffer* outputs, size_t output_count) {
  return with_context(__func__, context, [&](const char* where, Context& run) {
    take_buffers(where, "inputs", run.inputs(), batch, inputs, input_count, context->in);
    take_buffers(where, "outputs", run.outputs(), batch, outputs, output_count, context->out);
    expect_apart(where, inputs, input_count, outputs, output_count);
    run.run(batch, context->in, context->out);
  });
}

ulp_status ulp_context_position(ulp_context* context, int64_t* position) {
  return ask(__func__, context, position, "position",
             [](const char*, const Context& asked) { return asked.position(); });
}

ulp_status ulp_context_rewind(ulp_context* context, int64_t position) {
  return with_context(__func__, context,
                      [&](const char*, Context& set) { blame_arguments([&] { set.rewind(position); }); });
}

ulp_status ulp_context_arena_bytes(ulp_context* context, uint64_t* bytes) {
  return ask(__func__, context, bytes, "bytes",
             [](const char*, const Context& asked) { return asked.arena_bytes(); });
}

ulp_status ulp_context_threads(ulp_context* context, int32_t* threads) {
  return ask(__func__, context, threads, "threads",
             [](const char*, const Context& asked) { return asked.threads(); });
}
