#include "ulp/exchange/import_pt2.h"

#include "ulp/exchange/imported.h"
#include "ulp/exchange/pt2/archive.h"
#include "ulp/exchange/pt2/inputs.h"
#include "ulp/exchange/pt2/interpreter.h"
#include "ulp/exchange/pt2/straight_numbers.h"
#include "ulp/exchange/pt2/where.h"
#include "ulp/graph/graph_module.h"
#include "ulp/libtorch/shape_propagation.h"

namespace ulp::exchange {

namespace {

using pt2::kImportPt2Where;

/// One result as it is, those of a dictionary under their names, others in a tuple.
c10::IValue packed(const pt2::Program& program, const std::vector<at::Tensor>& results) {
  if (results.size() == 1) return results[0];
  if (program.result_names.empty())
    return c10::ivalue::Tuple::create(std::vector<c10::IValue>(results.begin(), results.end()));
  std::vector<std::pair<std::string, c10::IValue>> named;
  for (size_t i = 0; i < results.size(); ++i) named.emplace_back(program.result_names[i], results[i]);
  return graph::pack_names(named);
}

std::shared_ptr<graph::GraphModule> imported(const pt2::Archive& archive, const Pt2ImportOptions& options) {
  const pt2::Program program = archive.program();
  const pt2::Inputs inputs = pt2::inputs_of(program, options);
  const Attributes tensors = archive.tensors(program);
  std::shared_ptr<graph::GraphModule> module;
  const auto run = [&](const std::vector<at::Tensor>& given, bool training) {
    return packed(program, pt2::Interpreter(program, tensors, training, options.max_bytes).forward(given));
  };
  libtorch::with_shapes([&] {
    pt2::check_straight_numbers(program, tensors, inputs, options.max_bytes);
    module = captured_run(tensors, run, inputs.examples, inputs.options);
  });
  module->train(program.trains);
  return module;
}

template <typename Open>
std::shared_ptr<graph::GraphModule> opened(const std::filesystem::path& name, const Open& open) {
  return naming_file(kImportPt2Where, name, [&] {
    try {
      return open();
    } catch (const pt2::Json::exception& error) {
      fail_file(kImportPt2Where, "the description of the program is damaged: ", error.what());
    }
  });
}

}  // namespace

std::shared_ptr<graph::GraphModule> import_pt2(const std::filesystem::path& path,
                                               const Pt2ImportOptions& options) {
  return opened(path, [&] { return imported(pt2::Archive(path), options); });
}

std::shared_ptr<graph::GraphModule> import_pt2(std::string_view bytes, const std::filesystem::path& name,
                                               const Pt2ImportOptions& options) {
  return opened(name, [&] { return imported(pt2::Archive(bytes, name), options); });
}

}  // namespace ulp::exchange
