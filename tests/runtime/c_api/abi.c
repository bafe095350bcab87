/* Prints what a compiled program knows of the C API: numbers of enumerators, sizes and offsets. Compiles as C99. */
#include <stdio.h>

#include "ulp/ulp_runtime.h"

#define NUMBER(name) printf(#name " %d\n", (int)(name))
#define SIZE(type) printf("sizeof(" #type ") %zu\n", sizeof(type))
#define FIELD(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))

int main(void) {
  NUMBER(ULP_OK);
  NUMBER(ULP_INVALID_ARGUMENT);
  NUMBER(ULP_FILE_ERROR);
  NUMBER(ULP_REFUSED);
  NUMBER(ULP_OUT_OF_MEMORY);
  NUMBER(ULP_INTERNAL_ERROR);
  NUMBER(ULP_ERROR_FAILED);
  NUMBER(ULP_ERROR_BAD_ARGUMENT);
  NUMBER(ULP_ERROR_BAD_OPTION);
  NUMBER(ULP_ERROR_BAD_SHAPE);
  NUMBER(ULP_ERROR_BAD_FILE);
  NUMBER(ULP_ERROR_UNSUPPORTED_OP);
  NUMBER(ULP_ERROR_UNAVAILABLE);
  NUMBER(ULP_ERROR_OUT_OF_MEMORY);
  NUMBER(ULP_ERROR_INTERRUPTED);
  NUMBER(ULP_F32);
  NUMBER(ULP_BF16);
  NUMBER(ULP_U8);
  NUMBER(ULP_I8);
  NUMBER(ULP_I32);
  NUMBER(ULP_I64);
  NUMBER(ULP_F16);
  NUMBER(ULP_I16);
  NUMBER(ULP_F64);
  NUMBER(ULP_PLAIN);
  NUMBER(ULP_NHWC);
  NUMBER(ULP_SPARSE_MEASURE);
  NUMBER(ULP_SPARSE_NEVER);
  NUMBER(ULP_SPARSE_ALWAYS);
  NUMBER(ULP_BLOCKS_MEASURE);
  NUMBER(ULP_BLOCKS_NEVER);
  NUMBER(ULP_BLOCKS_ALWAYS);
  NUMBER(ULP_NO_TIME);
  NUMBER(ULP_OWN_THREADS);
  NUMBER(ULP_MAX_RANK);
  NUMBER(ULP_BATCH);
  SIZE(ulp_status);
  SIZE(ulp_engine_options);
  FIELD(ulp_engine_options, struct_size);
  FIELD(ulp_engine_options, isa);
  FIELD(ulp_engine_options, max_constant_bytes);
  FIELD(ulp_engine_options, max_arena_bytes);
  FIELD(ulp_engine_options, sparse_table);
  FIELD(ulp_engine_options, sparse_weights);
  FIELD(ulp_engine_options, reserved);
  FIELD(ulp_engine_options, error_budget);
  FIELD(ulp_engine_options, blocks);
  FIELD(ulp_engine_options, max_measuring_ms);
  SIZE(ulp_context_options);
  FIELD(ulp_context_options, struct_size);
  FIELD(ulp_context_options, threads);
  FIELD(ulp_context_options, reserved);
  FIELD(ulp_context_options, max_arena_bytes);
  FIELD(ulp_context_options, flags);
  SIZE(ulp_tensor_info);
  FIELD(ulp_tensor_info, struct_size);
  FIELD(ulp_tensor_info, name);
  FIELD(ulp_tensor_info, dtype);
  FIELD(ulp_tensor_info, layout);
  FIELD(ulp_tensor_info, rank);
  FIELD(ulp_tensor_info, zero_point);
  FIELD(ulp_tensor_info, scale);
  FIELD(ulp_tensor_info, shape);
  FIELD(ulp_tensor_info, times);
  FIELD(ulp_tensor_info, outer);
  SIZE(ulp_free_dimension);
  FIELD(ulp_free_dimension, struct_size);
  FIELD(ulp_free_dimension, name);
  FIELD(ulp_free_dimension, min);
  FIELD(ulp_free_dimension, max);
  FIELD(ulp_free_dimension, multiple);
  FIELD(ulp_free_dimension, continued);
  FIELD(ulp_free_dimension, reserved);
  SIZE(ulp_const_buffer);
  FIELD(ulp_const_buffer, data);
  FIELD(ulp_const_buffer, bytes);
  SIZE(ulp_buffer);
  FIELD(ulp_buffer, data);
  FIELD(ulp_buffer, bytes);
  SIZE(ulp_shape);
  FIELD(ulp_shape, sizes);
  FIELD(ulp_shape, rank);
  return 0;
}
