/* Runs an engine file from C on numbers of its own and prints the top class of each item:
 *   c_engine model.ulp [batch] */
#include <stdio.h>
#include <stdlib.h>
#include <ulp/ulp_runtime.h>

/* Tells what a call that failed had to say. */
static int passed(ulp_status status) {
  if (status != ULP_OK) fprintf(stderr, "%s: %s\n", ulp_status_name(status), ulp_last_error());
  return status == ULP_OK;
}

/* Numbers from -1 to 1, the same ones each time. */
static void fill(float* values, size_t count) {
  size_t i;
  for (i = 0; i < count; ++i) values[i] = (float)((i * 37 + 11) % 201) / 100.0F - 1.0F;
}

static void print_classes(const float* scores, int64_t batch, size_t classes) {
  int64_t item;
  for (item = 0; item < batch; ++item, scores += classes) {
    size_t top = 0, i;
    for (i = 1; i < classes; ++i)
      if (scores[i] > scores[top]) top = i;
    printf("item %ld: class %lu, score %g\n", (long)item, (unsigned long)top, scores[top]);
  }
}

/* One run of an engine with one input and one output of floats. */
static int run(ulp_context* context, int64_t batch) {
  ulp_const_buffer input = {NULL, 0};
  ulp_buffer output = {NULL, 0};
  float *values = NULL, *scores = NULL;
  int good = passed(ulp_context_input_bytes(context, 0, batch, &input.bytes)) &&
             passed(ulp_context_output_bytes(context, 0, batch, &output.bytes));
  if (good) {
    values = malloc(input.bytes);
    scores = malloc(output.bytes);
    good = values != NULL && scores != NULL;
  }
  if (good) {
    fill(values, input.bytes / sizeof *values);
    input.data = values;
    output.data = scores;
    good = passed(ulp_context_run(context, batch, &input, 1, &output, 1));
  }
  if (good) print_classes(scores, batch, output.bytes / sizeof *scores / (size_t)batch);
  free(values);
  free(scores);
  return good;
}

/* This program feeds and reads floats. */
static int takes_floats(const ulp_engine* engine) {
  ulp_tensor_info input = {.struct_size = sizeof input}, output = {.struct_size = sizeof output};
  if (!passed(ulp_engine_input(engine, 0, &input)) || !passed(ulp_engine_output(engine, 0, &output)))
    return 0;
  if (input.dtype == ULP_F32 && output.dtype == ULP_F32) return 1;
  fprintf(stderr, "this example feeds and reads f32 only, and '%s' or '%s' is not\n", input.name,
          output.name);
  return 0;
}

int main(int argc, char** argv) {
  ulp_engine* engine = NULL;
  ulp_context* context = NULL;
  ulp_context_options options = {.struct_size = sizeof options, .threads = 2};
  const char* isa = NULL;
  int good;
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: c_engine model.ulp [batch]\n");
    return 2;
  }
  good = passed(ulp_engine_load(argv[1], NULL, &engine)) && takes_floats(engine) &&
         passed(ulp_engine_isa(engine, &isa)) && passed(ulp_context_create(engine, &options, &context)) &&
         run(context, argc == 3 ? atol(argv[2]) : 1);
  if (good) printf("ulp %s on %s\n", ulp_version(), isa);
  ulp_context_destroy(context);
  ulp_engine_destroy(engine);
  return good ? 0 : 1;
}
