#include "ulp/memory/checkpoint/layout.h"

#include <algorithm>
#include <unordered_set>

#include "ulp/base/error.h"
#include "ulp/graph/capture/schema.h"
#include "ulp/graph/describe.h"
#include "ulp/memory/checkpoint/call_order.h"

namespace ulp::memory {
namespace {

using graph::Argument;
using graph::Node;

bool is_norm(const Node& node) {
  return node.is("aten::batch_norm") || node.is("aten::native_batch_norm") || node.is("aten::instance_norm");
}

bool is_statistic(const Node& node, size_t arg) {
  return std::ranges::count(statistics_of(node), arg) > 0;
}

/// Whether a call writes to its argument.
bool writes(const Node& node, size_t arg) {
  if (node.kind() != Node::Kind::call || !node.args[arg].is_value()) return false;
  if (is_norm(node) && is_statistic(node, arg)) return node.has_effect();
  const c10::AliasInfo* alias = node.schema().arguments()[arg].alias_info();
  return alias && alias->isWrite();
}

bool is_attribute(const Argument& argument) {
  return argument.is_value() && argument.value->producer->kind() == Node::Kind::attribute;
}

/// Names of attributes that some call writes.
std::unordered_set<std::string> written_attributes(const graph::Graph& graph) {
  std::unordered_set<std::string> names;
  for (const auto& node : graph.nodes()) {
    for (size_t i = 0; i < node->args.size(); ++i) {
      if (is_attribute(node->args[i]) && writes(*node, i))
        names.insert(node->args[i].value->producer->target());
    }
  }
  return names;
}

/// Whether a call writes to what may be read again.
bool changes_values(const Node& node) {
  for (size_t arg = 0; arg < node.args.size(); ++arg) {
    if (!is_statistic(node, arg) && writes(node, arg)) return true;
  }
  return false;
}

}  // namespace

std::vector<size_t> statistics_of(const Node& node) {
  if (is_norm(node)) return {3, 4};
  if (node.is("ulp::fp8_linear")) return {4};
  if (node.is("ulp::fp8_convolution")) return {8};
  return {};
}

Layout::Layout(std::shared_ptr<const graph::Graph> the_graph,
               std::shared_ptr<const graph::Program> the_program, const CheckpointPlan& plan,
               std::shared_ptr<Packer> the_packer)
    : graph(std::move(the_graph)), program(std::move(the_program)), packer(std::move(the_packer)) {
  const size_t steps = program->step_count(), slots = program->slot_count();
  made_by.assign(slots, -1);
  kept.assign(slots, 0);
  kept_inner.assign(steps, 0);
  random.assign(steps, 0);
  updates_statistics.assign(steps, 0);
  for (size_t step = 0; step < steps; ++step) {
    for (int32_t slot : program->writes(step))
      made_by[static_cast<size_t>(slot)] = static_cast<int64_t>(step);
  }
  add_regions(plan);
  find_effects();
  for (Region& region : regions) {
    if (region.replays) find_inputs(region);
  }
  // What a later segment holds is there for the earlier one, too.
  for (const Region& region : regions) {
    for (int32_t slot : region.inputs) {
      const bool inside = region.parent >= 0 && regions[static_cast<size_t>(region.parent)].replays;
      if (!inside) kept[static_cast<size_t>(slot)] = 1;
    }
  }
  find_formats(plan);
  find_last_readers();
}

void Layout::find_formats(const CheckpointPlan& plan) {
  masks.resize(program->step_count());
  formats.assign(program->slot_count(), plan.saved.format);
  for (const auto& [value, format] : plan.formats)
    formats[static_cast<size_t>(program->slot_of(value))] = format;
  for (size_t step = 0; plan.saved.masks && step < program->step_count(); ++step)
    masks[step] = mask_rule(program->node(step));
}

void Layout::find_last_readers() {
  last_reader.assign(program->slot_count(), 0);
  for (size_t step = 0; step < program->step_count(); ++step) {
    for (int32_t slot : program->reads(step)) last_reader[static_cast<size_t>(slot)] = step;
    for (int32_t slot : program->writes(step)) last_reader[static_cast<size_t>(slot)] = step;
  }
  for (const graph::Value* value : graph->output_node()->reads()) {
    if (value->producer->kind() != Node::Kind::attribute)
      last_reader[static_cast<size_t>(program->slot_of(value))] = program->step_count();
  }
}

void Layout::add_regions(const CheckpointPlan& plan) {
  check_plan(*graph, plan);
  const CallOrder order(*graph);
  for (const Segment& segment : plan.segments) {
    regions.push_back(
        {static_cast<size_t>(order.of(segment.first)), static_cast<size_t>(order.of(segment.last)) + 1});
    for (const graph::Value* value : segment.kept) kept[static_cast<size_t>(program->slot_of(value))] = 1;
    for (const Node* node : segment.kept_inner) kept_inner[static_cast<size_t>(order.of(node))] = 1;
  }
  if (packer) regions.push_back({.begin = 0, .end = program->step_count(), .replays = false});
  std::ranges::sort(regions, [](const Region& a, const Region& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.end != b.end ? a.end > b.end : a.replays < b.replays;
  });
  for (size_t i = 0; i < regions.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (regions[j].end >= regions[i].end)
        regions[i].parent = static_cast<int32_t>(j);  // the last one is innermost
    }
  }
}

bool Layout::in_region(size_t step) const {
  return std::ranges::any_of(regions,
                             [&](const Region& r) { return r.replays && r.begin <= step && step < r.end; });
}

void Layout::keep_all_of(size_t step) {
  kept_inner[step] = 1;
  for (int32_t slot : program->writes(step)) kept[static_cast<size_t>(slot)] = 1;
}

void Layout::find_effects() {
  const std::unordered_set<std::string> written = written_attributes(*graph);
  std::vector<std::unordered_set<const c10::TensorImpl*>> seen(regions.size());
  for (size_t step = 0; step < program->step_count(); ++step) {
    const Node& node = program->node(step);
    if (node.kind() == Node::Kind::module) {
      keep_all_of(step);  // it may have state of its own
      continue;
    }
    random[step] = graph::is_random(node.schema());
    if (changes_values(node)) keep_all_of(step);
    for (size_t i = 0; i < node.args.size(); ++i) {
      const bool write = writes(node, i);
      if (is_statistic(node, i) && write) {
        updates_statistics[step] = 1;
      } else if (is_attribute(node.args[i]) && written.contains(node.args[i].value->producer->target())) {
        keep_all_of(step);  // what it read may be gone
      } else if (write && in_region(step)) {
        fail("memory.checkpoint", "expected calls that change no values in a segment, got ",
             graph::describe(node));
      }
    }
    for (size_t r = 0; r < regions.size(); ++r) {
      if (!regions[r].replays || step < regions[r].begin || step >= regions[r].end) continue;
      for (const graph::Value* value : node.reads()) {
        const Node& from = *value->producer;
        if (from.kind() != Node::Kind::attribute || written.contains(from.target())) continue;
        const at::Tensor tensor = graph->find_attribute(from.target())->tensor;
        if (seen[r].insert(tensor.unsafeGetTensorImpl()).second) regions[r].attributes.push_back(tensor);
      }
    }
  }
}

void Layout::find_inputs(Region& region) const {
  for (size_t step = region.begin; step < region.end; ++step) {
    for (int32_t slot : program->reads(step)) {
      if (made_by[static_cast<size_t>(slot)] < static_cast<int64_t>(region.begin) &&
          std::ranges::find(region.inputs, slot) == region.inputs.end())
        region.inputs.push_back(slot);
    }
  }
}

}  // namespace ulp::memory
