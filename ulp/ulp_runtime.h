/* The C API of the runtime: engine files run from C, and from whatever calls C. C99; part of libulp_runtime.
 *
 * - Every function that can fail returns a status, ULP_OK or what went wrong; ulp_last_error() says it in words. A failed
 *   call changes nothing that it was given, but for handles, which it sets to NULL, and outputs of a run.
 * - An engine is a loaded model. It does not change, and any number of threads may use it at the same time. A context is
 *   the memory of one caller: make one for each thread. Two calls on one context at the same time: the later one fails.
 * - Structs that begin with `struct_size` may grow at their end in later versions. Set it to sizeof; zeros in the other
 *   fields are the defaults. Programs that were compiled against an older header keep working, and newer ones work with
 *   an older library as long as what it does not know is 0.
 * - No C++ exception leaves a function. Handles must be those of this API, and alive; strings end with '\0'.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ulp/base/export.h"
#include "ulp/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What became of a call. Numbers keep their meaning; later versions may add some. */
typedef enum ulp_status {
  ULP_OK = 0,
  ULP_INVALID_ARGUMENT = 1, /**< NULL, a wrong size, an unknown name, ... */
  ULP_FILE_ERROR =
      2, /**< an engine file that is missing, damaged, hostile, of another kind or a newer version */
  ULP_REFUSED =
      3, /**< what an engine or the machine cannot do: an id outside its table, a run too many, ... */
  ULP_OUT_OF_MEMORY = 4,
  ULP_INTERNAL_ERROR = 5 /**< a defect of the library */
} ulp_status;

/** What kind of error the last failed call met, more finely than its status: the codes of ulp::ErrorCode. Numbers keep their
 * meaning; later versions may add some. */
typedef enum ulp_error_code {
  ULP_ERROR_FAILED = 0,       /**< none of the kinds below */
  ULP_ERROR_BAD_ARGUMENT = 1, /**< NULL, an index or a struct_size out of range, an unknown name */
  ULP_ERROR_BAD_OPTION = 2,   /**< an option, or several that do not go together */
  ULP_ERROR_BAD_SHAPE = 3, /**< a tensor of other sizes, dimensions or types, or another number of tensors */
  ULP_ERROR_BAD_FILE = 4,  /**< a file that is missing, damaged, of another kind or of a newer version */
  ULP_ERROR_UNSUPPORTED_OP = 5,
  ULP_ERROR_UNAVAILABLE = 6,   /**< what this build or this machine does not have: an instruction set */
  ULP_ERROR_OUT_OF_MEMORY = 7, /**< a limit of memory, or the system's end of it */
  ULP_ERROR_INTERRUPTED = 8
} ulp_error_code;

/** Types of elements. Plans of this version use the first six. */
typedef enum ulp_dtype {
  ULP_F32 = 0,
  ULP_BF16 = 1, /**< the upper half of a float */
  ULP_U8 = 2,
  ULP_I8 = 3,
  ULP_I32 = 4,
  ULP_I64 = 5,
  ULP_F16 = 6,
  ULP_I16 = 7,
  ULP_F64 = 8
} ulp_dtype;

/** How a tensor's elements lie. Shapes are in logical order (N, C, H, W for images) in both. */
typedef enum ulp_layout {
  ULP_PLAIN = 0,
  ULP_NHWC = 1 /**< the channels of images or volumes are innermost */
} ulp_layout;

/** What to do with weights of zero; the results are those of dense layers. */
typedef enum ulp_sparse_weights {
  ULP_SPARSE_MEASURE = 0, /**< a layer with enough zeros is timed both ways while the engine loads */
  ULP_SPARSE_NEVER = 1,
  ULP_SPARSE_ALWAYS = 2
} ulp_sparse_weights;

/** What to do with convolutions that can pass over an image together, some rows at a time; the results are the same. */
typedef enum ulp_layer_blocks {
  ULP_BLOCKS_MEASURE =
      0, /**< those between which more lies than stays in the cache; in doubt both ways are timed */
  ULP_BLOCKS_NEVER = 1,
  ULP_BLOCKS_ALWAYS = 2
} ulp_layer_blocks;

/** As ulp_engine_options::max_measuring_ms: nothing is timed while an engine loads. */
#define ULP_NO_TIME (-1)
/** As ulp_context_options::flags: the context shares no threads with others. */
#define ULP_OWN_THREADS 1
/** The most dimensions that a tensor has. */
#define ULP_MAX_RANK 8
/** Stands in a shape for the batch, which each run chooses. */
#define ULP_BATCH (-1)

/** A loaded model. */
typedef struct ulp_engine ulp_engine;
/** The memory and the free sizes of one caller of an engine. */
typedef struct ulp_context ulp_context;

/** How an engine is made. */
typedef struct ulp_engine_options {
  size_t struct_size; /**< sizeof(ulp_engine_options) */
  const char* isa; /**< a name of ulp_isa_name(); NULL or "": ULP_ISA of the environment, else the best one */
  uint64_t
      max_constant_bytes; /**< of packed constants and tables; 0: four times the plan's constants and 256 MiB */
  uint64_t max_arena_bytes; /**< of intermediates, in each context; 0: the memory of the machine */
  const char* sparse_table; /**< a file of what was timed, read and added to; NULL or "": none */
  int32_t sparse_weights;   /**< a ulp_sparse_weights */
  int32_t reserved;         /**< 0 */
  double
      error_budget; /**< above 0: layers in f32 whose error in bf16, a root mean square relative to the result, is no more than this run so
                            where that is faster; 0.003 is enough for most */
  int32_t blocks;   /**< a ulp_layer_blocks */
  int32_t
      max_measuring_ms; /**< of the loading thread, after which no layer is timed any more; 0: 5,000; ULP_NO_TIME: none */
} ulp_engine_options;

/** How a context is made. */
typedef struct ulp_context_options {
  size_t struct_size; /**< sizeof(ulp_context_options) */
  int32_t
      threads; /**< that a run uses, the calling one among them; 0: one for each core the process may use */
  int32_t reserved;         /**< 0 */
  uint64_t max_arena_bytes; /**< of intermediates; 0: what the engine allows */
  uint64_t flags;           /**< ULP_OWN_THREADS; 0: the contexts of a process have their threads together */
} ulp_context_options;

/** An input or an output. */
typedef struct ulp_tensor_info {
  size_t struct_size;          /**< sizeof(ulp_tensor_info), set by the caller */
  const char* name;            /**< lives as long as the engine, or the context it was asked from */
  int32_t dtype;               /**< a ulp_dtype */
  int32_t layout;              /**< a ulp_layout */
  int32_t rank;                /**< dimensions in `shape` that count */
  int32_t zero_point;          /**< of ULP_U8: real = (code - zero_point) * scale */
  double scale;                /**< the same */
  int64_t shape[ULP_MAX_RANK]; /**< one size may be ULP_BATCH; 0 behind `rank` */
  int64_t times; /**< the size that ULP_BATCH stands for is so many times the batch: 1, or more where rows of
                                    the model are batch x time */
  int64_t outer; /**< of these so many stand before the batch: that dimension is [outer, batch, times / outer]
                                    in one. 1 but for rows that are time x batch */
} ulp_tensor_info;

/** A dimension beside the batch whose size each context chooses. */
typedef struct ulp_free_dimension {
  size_t struct_size; /**< sizeof(ulp_free_dimension), set by the caller */
  const char* name;   /**< lives as long as the engine */
  int64_t min, max;   /**< sizes that it may have, both included */
  int64_t multiple;   /**< of which every size is one */
  int32_t
      continued; /**< 1: runs continue each other along it, as a text that is written token by token; else 0 */
  int32_t reserved; /**< 0 */
} ulp_free_dimension;

/** What a run reads: dense elements, in the tensor's layout, aligned for their type. */
typedef struct ulp_const_buffer {
  const void* data;
  size_t bytes;
} ulp_const_buffer;

/** What a run writes. */
typedef struct ulp_buffer {
  void* data;
  size_t bytes;
} ulp_buffer;

/** The sizes of an array. */
typedef struct ulp_shape {
  const int64_t* sizes; /**< may be NULL where rank is 0 */
  size_t rank;
} ulp_shape;

/* ---- of the library ---- */

/** "major.minor.patch" of the library; ULP_VERSION is that of the header. */
ULP_API const char* ulp_version(void);
/** "ok", "invalid argument", ...; "unknown status" for another number. */
ULP_API const char* ulp_status_name(int32_t status);
/** What the last call of this thread that failed had to say, in UTF-8; "" where none has. Valid until the next one fails. */
ULP_API const char* ulp_last_error(void);
/** The kind of that error, a ulp_error_code; ULP_ERROR_FAILED where no call has failed. */
ULP_API int32_t ulp_last_error_code(void);
/** "bad_shape", "out_of_memory", ...; "unknown code" for another number. */
ULP_API const char* ulp_error_code_name(int32_t code);
/** Bytes of an element of a ulp_dtype. */
ULP_API ulp_status ulp_dtype_bytes(int32_t dtype, size_t* bytes);
/** "f32", "bf16", ...: the word for a ulp_dtype. */
ULP_API ulp_status ulp_dtype_name(int32_t dtype, const char** name);
/** How many instruction sets of the kernels this machine can run. */
ULP_API ulp_status ulp_isa_count(size_t* count);
/** Their names, the best one first: "avx2", "portable". They live forever. */
ULP_API ulp_status ulp_isa_name(size_t index, const char** name);

/* ---- engines ---- */

/** Loads an engine file. `options` may be NULL. The file may come from a stranger. */
ULP_API ulp_status ulp_engine_load(const char* path, const ulp_engine_options* options, ulp_engine** engine);
/** Loads the bytes of an engine file. They are not needed afterwards. */
ULP_API ulp_status ulp_engine_load_memory(const void* bytes, size_t size, const ulp_engine_options* options,
                                          ulp_engine** engine);
/** Ends an engine; NULL is ignored. Contexts of it live on by themselves. */
ULP_API void ulp_engine_destroy(ulp_engine* engine);

/** How many inputs a run takes. */
ULP_API ulp_status ulp_engine_input_count(const ulp_engine* engine, size_t* count);
/** How many outputs a run gives. */
ULP_API ulp_status ulp_engine_output_count(const ulp_engine* engine, size_t* count);
/** An input, with free dimensions at their largest. */
ULP_API ulp_status ulp_engine_input(const ulp_engine* engine, size_t index, ulp_tensor_info* info);
/** An output, with free dimensions at their largest. */
ULP_API ulp_status ulp_engine_output(const ulp_engine* engine, size_t index, ulp_tensor_info* info);
/** How many free dimensions there are beside the batch. */
ULP_API ulp_status ulp_engine_free_dimension_count(const ulp_engine* engine, size_t* count);
/** A free dimension. */
ULP_API ulp_status ulp_engine_free_dimension(const ulp_engine* engine, size_t index,
                                             ulp_free_dimension* dimension);
/** The instruction set that the kernels use, a name of ulp_isa_name(). */
ULP_API ulp_status ulp_engine_isa(const ulp_engine* engine, const char** name);
/** Bytes of the constants, which all contexts share. */
ULP_API ulp_status ulp_engine_constant_bytes(const ulp_engine* engine, uint64_t* bytes);

/* ---- contexts ---- */

/** Makes a context. `options` may be NULL. Threads do not follow into a child of fork(): contexts that were made
    before it run on the calling thread alone there; one that another thread was using refuses every call. */
ULP_API ulp_status ulp_context_create(const ulp_engine* engine, const ulp_context_options* options,
                                      ulp_context** context);
/** Ends a context; NULL is ignored. */
ULP_API void ulp_context_destroy(ulp_context* context);

/** Sets a free dimension. A new context has the largest sizes. */
ULP_API ulp_status ulp_context_set_size(ulp_context* context, const char* name, int64_t size);
/** The size of a free dimension. */
ULP_API ulp_status ulp_context_size(ulp_context* context, const char* name, int64_t* size);
/** Sets all free dimensions to the sizes in inputs of these shapes, checks the other sizes, and tells the batch (1 where no
    input has one). `count` is the number of inputs. */
ULP_API ulp_status ulp_context_set_input_shapes(ulp_context* context, const ulp_shape* shapes, size_t count,
                                                int64_t* batch);
/** An input at the present sizes. */
ULP_API ulp_status ulp_context_input(ulp_context* context, size_t index, ulp_tensor_info* info);
/** An output at the present sizes. */
ULP_API ulp_status ulp_context_output(ulp_context* context, size_t index, ulp_tensor_info* info);
/** Bytes of an input in a run of this batch, at the present sizes. */
ULP_API ulp_status ulp_context_input_bytes(ulp_context* context, size_t index, int64_t batch, size_t* bytes);
/** Bytes of an output in a run of this batch, at the present sizes. */
ULP_API ulp_status ulp_context_output_bytes(ulp_context* context, size_t index, int64_t batch, size_t* bytes);

/** Takes the memory for runs of this batch and smaller ones at the present sizes: the next run allocates nothing. */
ULP_API ulp_status ulp_context_reserve(ulp_context* context, int64_t batch);
/** Computes all outputs. Buffers stand in the order of the inputs and outputs, have exactly the bytes that
    ulp_context_input_bytes() and ulp_context_output_bytes() tell, and do not overlap an output. Outputs hold no result after
    an error. Allocates nothing once a run of this batch or a larger one has been made or reserved. */
ULP_API ulp_status ulp_context_run(ulp_context* context, int64_t batch, const ulp_const_buffer* inputs,
                                   size_t input_count, const ulp_buffer* outputs, size_t output_count);

/** Of an engine whose runs continue each other: how many rows the runs so far have taken. 0 for other engines. */
ULP_API ulp_status ulp_context_position(ulp_context* context, int64_t* position);
/** Forgets the runs behind an earlier position; 0: all. */
ULP_API ulp_status ulp_context_rewind(ulp_context* context, int64_t position);
/** Bytes that the context holds for intermediates and scratch. */
ULP_API ulp_status ulp_context_arena_bytes(ulp_context* context, uint64_t* bytes);
/** The threads that a run uses. */
ULP_API ulp_status ulp_context_threads(ulp_context* context, int32_t* threads);

#ifdef __cplusplus
}
#endif
