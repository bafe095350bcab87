#include "ulp/distill/layer_init.h"

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "ulp/base/error.h"
#include "ulp/io/safetensors.h"

namespace ulp::distill {

namespace {

constexpr const char* kInitFromWhere = "distill.init_from";

/// The number behind `layers` in a name, and what follows.
struct Layered {
  int64_t layer = 0;
  std::string rest;
};

std::optional<Layered> layered(const std::string& name, const std::string& layers) {
  if (layers.empty() || !name.starts_with(layers + '.')) return std::nullopt;
  const char* begin = name.data() + layers.size() + 1;
  Layered found;
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), found.layer);
  if (error != std::errc() || found.layer < 0 || *end != '.') return std::nullopt;
  found.rest = end;
  return found;
}

int64_t layer_count(const io::NamedTensors& state, const std::string& layers, const char* who) {
  int64_t count = 0;
  for (const auto& [name, tensor] : state) {
    if (const auto found = layered(name, layers)) count = std::max(count, found->layer + 1);
  }
  if (count == 0) fail(kInitFromWhere, "expected a ", who, " with layers '", layers, ".0' and on, got none");
  return count;
}

}  // namespace

std::vector<int64_t> layer_map(int64_t student_layers, int64_t teacher_layers) {
  if (student_layers < 1 || student_layers > teacher_layers)
    fail("distill.layer_map", "expected 1 to ", teacher_layers, " layers of the student, got ",
         student_layers);
  std::vector<int64_t> map;
  for (int64_t m = 1; m <= student_layers; ++m)
    map.push_back((m * teacher_layers + student_layers - 1) / student_layers - 1);
  return map;
}

InitReport init_from(torch::nn::Module& student, const torch::nn::Module& teacher, const std::string& layers,
                     int64_t every) {
  const at::NoGradGuard no_grad;
  const io::NamedTensors own = io::named_state(student), theirs = io::named_state(teacher);
  std::map<std::string, at::Tensor> by_name(theirs.begin(), theirs.end());
  std::vector<int64_t> map;
  if (!layers.empty()) {
    const int64_t count = layer_count(own, layers, "student"), from = layer_count(theirs, layers, "teacher");
    if (every < 0 || (every > 0 && (count - 1) * every >= from))
      fail(kInitFromWhere, "expected every >= 0 with ", count, " of ", from, " layers, got ", every);
    for (int64_t i = 0; every > 0 && i < count; ++i) map.push_back(i * every);
    if (every == 0) map = layer_map(count, from);
  }
  InitReport report;
  for (const auto& [name, tensor] : own) {
    std::string source = name;
    if (const auto found = layered(name, layers))
      source = layers + '.' + std::to_string(map[static_cast<size_t>(found->layer)]) + found->rest;
    const auto from = by_name.find(source);
    if (from == by_name.end() || from->second.sizes() != tensor.sizes()) {
      report.left.push_back(name);
      continue;
    }
    at::Tensor(tensor).detach().copy_(from->second);
    report.copied.push_back(name);
  }
  if (report.copied.empty())
    fail(kInitFromWhere, "expected a teacher with tensors of the student's names, got none of ", own.size());
  return report;
}

}  // namespace ulp::distill
