// Replays tests/golden/prune.json (make_prune.py): the masks are those of torch.nn.utils.prune, bit for bit,
// also where it is applied again to what it left.
#include <fstream>
#include <nlohmann/json.hpp>

#include "quant/golden_data.h"
#include "support.h"
#include "ulp/prune/select.h"

namespace ulp::prune::tests {
namespace {

using nlohmann::json;

const json& golden_masks() {
  static const json data =
      json::parse(std::ifstream(std::string(ULP_SOURCE_DIR) + "/tests/golden/prune.json"));
  return data;
}

/// The layers of the script in its order, without masks.
std::vector<LayerScores> golden_layers() {
  std::vector<LayerScores> layers;
  uint64_t seed = 0;
  for (const char* name : {"fc1", "fc2", "conv"}) {
    const auto sizes = golden_masks()["sizes"][name].get<std::vector<int64_t>>();
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    const at::Tensor weight = 2 * torch::tensor(quant::test::uniform(++seed, count)).view(sizes) - 1;
    layers.push_back({name, weight.abs(), {}});
  }
  return layers;
}

Selection as_called(const json& of, const json& amount) {
  Selection selection{.scope = of["method"] == "global_unstructured" ? Scope::global : Scope::layer};
  selection.amount =
      amount.is_number_integer() ? Amount::units(amount.get<int64_t>()) : Amount::share(amount.get<double>());
  if (of["method"] == "ln_structured") {
    selection.pattern = Pattern::of(of["dim"] == 0 ? PatternKind::rows : PatternKind::columns);
    selection.pattern.unit_score = of["n"] == "inf" ? UnitScore::max
                                   : of["n"] == 2   ? UnitScore::l2
                                                    : UnitScore::sum;
  }
  return selection;
}

std::string bits_of(const at::Tensor& keep) {
  std::string text;
  const at::Tensor flat = keep.flatten();
  for (int64_t i = 0; i < flat.numel(); ++i) text += flat[i].item<bool>() ? '1' : '0';
  return text;
}

TEST(AgainstPyTorch, EveryMaskIsTheirs) {
  int compared = 0;
  for (const json& one : golden_masks()["cases"]) {
    SCOPED_TRACE(one.dump().substr(0, 100));
    std::vector<LayerScores> layers = golden_layers();
    for (size_t call = 0; call < one["amounts"].size(); ++call) {
      const std::vector<at::Tensor> masks = select(layers, as_called(one, one["amounts"][call]));
      for (size_t i = 0; i < layers.size(); ++i) {
        EXPECT_EQ(bits_of(masks[i]), one["masks"][call][layers[i].name].get<std::string>())
            << layers[i].name << ", call " << call;
        layers[i].keep = masks[i];
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 90);
}

}  // namespace
}  // namespace ulp::prune::tests
