#include "ulp/lower/dynamic_shapes.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ulp/base/error.h"
#include "ulp/runtime/plan/plan_json.h"
#include "ulp/runtime/plan/plan_specializer.h"

namespace ulp::lowering {
namespace {

using Json = nlohmann::json;
using runtime::Constant;
using runtime::Plan;

constexpr const char* kLowerFreeWhere = "lower.lower";
constexpr int kDegree = 2;

/// The largest sizes and those below them.
SizeGrid grid_of(const graph::Graph& graph) {
  SizeGrid grid;
  for (const graph::DynamicDimension& free : graph.free) {
    const int64_t top = free.max / free.multiple * free.multiple;
    const int64_t below = (top - free.min) / free.multiple;
    grid.axes.push_back({top, -free.multiple, static_cast<int>(std::min<int64_t>(kDegree, below))});
  }
  return grid;
}

/// Sizes beside the grid, where some dimension has as many.
std::vector<std::vector<int64_t>> beside(const graph::Graph& graph, const SizeGrid& grid) {
  std::vector<int64_t> sizes;
  bool any = false;
  for (size_t i = 0; i < grid.axes.size(); ++i) {
    const SizeGrid::Axis& axis = grid.axes[i];
    sizes.push_back(axis.base + (axis.degree + 1) * axis.step);
    if (sizes.back() < graph.free[i].min) {
      sizes.back() = axis.base;  // the grid has all of its sizes
    } else {
      any = true;
    }
  }
  if (!any) return {};
  return {sizes};
}

/// A plan at some sizes.
struct Sample {
  std::vector<int64_t> sizes;
  Plan plan;
  Json numbers;
};

class Joiner {
 public:
  Joiner(const graph::Graph& graph, const LowerPlain& lower) : graph_(graph), grid_(grid_of(graph)) {
    std::vector<std::vector<int64_t>> points = grid_.points();
    on_grid_ = points.size();
    for (std::vector<int64_t>& sizes : beside(graph, grid_)) points.push_back(std::move(sizes));
    for (const std::vector<int64_t>& sizes : points) {
      const std::shared_ptr<graph::Graph> fixed = graph.clone();
      fixed->fix_free(sizes);
      Plan plan = lower(*fixed);
      Json numbers = runtime::numbers_to_json(plan, runtime::WrittenFields::all);
      samples_.push_back({sizes, std::move(plan), std::move(numbers)});
    }
  }

  Plan run() {
    std::vector<const Json*> numbers;
    for (const Sample& sample : samples_) numbers.push_back(&sample.numbers);
    join(numbers, "");
    join_constants();
    Plan plan = std::move(samples_[0].plan);
    for (size_t i = 0; i < graph_.free.size(); ++i) {
      const ulp::DynamicDimension& free = graph_.free[i];
      found_.free.push_back({free.name, free.min, grid_.axes[i].base, free.multiple});
    }
    plan.following = std::move(found_);
    return plan;
  }

 private:
  /// "at time 16", of a sample.
  std::string at(size_t sample) const {
    std::string text = "at";
    for (size_t i = 0; i < graph_.free.size(); ++i)
      text += " " + graph_.free[i].name + " " + std::to_string(samples_[sample].sizes[i]);
    return text;
  }

  /// The step or tensor that a path of the plan is in.
  std::string place(const std::string& path) const {
    const Json& all = samples_[0].numbers;
    const size_t second = path.find('/', path.find('/', 1) + 1);
    const Json::json_pointer name(path.substr(0, second) + "/name");
    const bool named = second != std::string::npos && all.contains(name);
    return named ? "'" + all[name].get<std::string>() + "' (" + path.substr(second + 1) + ")" : path;
  }

  [[noreturn]] void refuse(const std::string& path, size_t sample, const Json& a, const Json& b) const {
    fail(kLowerFreeWhere, "expected whole numbers that follow the free dimensions, got ", place(path), " = ",
         a.dump().substr(0, 60), " ", at(0), " and ", b.dump().substr(0, 60), " ", at(sample));
  }

  /// A path's words with '~' and '/' as RFC 6901 writes them.
  static std::string escaped(std::string word) {
    for (size_t i = 0; i < word.size(); ++i) {
      if (word[i] == '~')
        word.replace(i++, 1, "~0");
      else if (word[i] == '/')
        word.replace(i++, 1, "~1");
    }
    return word;
  }

  void join(const std::vector<const Json*>& seen, const std::string& path) {
    const Json& first = *seen[0];
    for (size_t s = 1; s < seen.size(); ++s) {
      const bool alike =
          seen[s]->type() == first.type() || (seen[s]->is_number_integer() && first.is_number_integer());
      if (!alike || seen[s]->size() != first.size()) refuse(path, s, first, *seen[s]);
    }
    if (first.is_array()) {
      for (size_t i = 0; i < first.size(); ++i)
        join(parts(seen, [i](const Json& json) { return &json[i]; }), path + "/" + std::to_string(i));
    } else if (first.is_object()) {
      for (const auto& item : first.items()) {
        const std::string& key = item.key();
        for (size_t s = 1; s < seen.size(); ++s) {
          if (!seen[s]->contains(key)) refuse(path, s, first, *seen[s]);
        }
        join(parts(seen, [&](const Json& json) { return &json.at(key); }), path + "/" + escaped(key));
      }
    } else {
      join_values(seen, path);
    }
  }

  template <typename Part>
  static std::vector<const Json*> parts(const std::vector<const Json*>& seen, const Part& part) {
    std::vector<const Json*> result;
    for (const Json* json : seen) result.push_back(part(*json));
    return result;
  }

  void join_values(const std::vector<const Json*>& seen, const std::string& path) {
    const auto other = std::ranges::find_if(seen, [&](const Json* json) { return *json != *seen[0]; });
    if (other == seen.end()) return;
    const auto sample = static_cast<size_t>(other - seen.begin());
    if (seen[0]->is_string()) return join_words(seen, path);
    if (!seen[0]->is_number_integer()) refuse(path, sample, *seen[0], **other);
    std::vector<int64_t> values;
    for (const Json* json : seen) values.push_back(json->get<int64_t>());
    found_.numbers.push_back(
        {path, follow(values, [&](size_t s) { refuse(path, s, *seen[0], *seen[s]); }), -1});
  }

  /// Texts of as many words, of which only whole numbers differ.
  void join_words(const std::vector<const Json*>& seen, const std::string& path) {
    std::vector<std::vector<runtime::TextWord>> texts;
    for (const Json* json : seen) texts.push_back(runtime::words_of(json->get<std::string>()));
    for (size_t s = 1; s < texts.size(); ++s) {
      if (texts[s].size() != texts[0].size()) refuse(path, s, *seen[0], *seen[s]);
    }
    for (size_t w = 0; w < texts[0].size(); ++w) {
      std::vector<int64_t> values;
      bool same = true;
      for (size_t s = 0; s < texts.size(); ++s) {
        const std::string& word = texts[s][w].text;
        same = same && word == texts[0][w].text;
        if (runtime::is_whole(word)) values.push_back(std::stoll(word));
      }
      if (same) continue;
      const auto refuse_word = [&](size_t s) { refuse(path, s, *seen[0], *seen[s]); };
      if (values.size() != texts.size()) refuse_word(1);
      found_.numbers.push_back({path, follow(values, refuse_word), static_cast<int32_t>(w)});
    }
  }

  /// The polynomial of these values, one a sample. `refuse` is told the sample where it gives another one.
  template <typename Refuse>
  Polynomial follow(const std::vector<int64_t>& values, const Refuse& refuse) const {
    const Polynomial value = fit(grid_, std::span(values).first(on_grid_));
    for (size_t s = on_grid_; s < values.size(); ++s) {
      if (value.at(samples_[s].sizes) != values[s]) refuse(s);
    }
    return value;
  }

  void join_constants() {
    for (const auto& [name, whole] : samples_[0].plan.constants) {
      bool same = true;
      for (const Sample& sample : samples_) {
        const auto part = sample.plan.constants.find(name);
        if (part == sample.plan.constants.end()) refuse_constant(name, sample);
        check_corner(name, whole, part->second, sample);
        same = same && part->second.shape == whole.shape;
      }
      if (!same) found_.corners[name] = sizes_of_corner(name, whole.shape.size());
    }
    for (const Sample& sample : samples_) {
      if (sample.plan.constants.size() != samples_[0].plan.constants.size())
        fail(kLowerFreeWhere, "expected the same constants at all sizes, got ",
             samples_[0].plan.constants.size(), " ", at(0), " and ", sample.plan.constants.size(), " ",
             at(static_cast<size_t>(&sample - samples_.data())));
    }
  }

  [[noreturn]] void refuse_constant(const std::string& name, const Sample& sample) const {
    fail(kLowerFreeWhere,
         "expected constants that are the first elements of those at the largest sizes, got another '", name,
         "' ", at(static_cast<size_t>(&sample - samples_.data())));
  }

  /// Throws unless `part` is the first elements of `whole` along each dimension.
  void check_corner(const std::string& name, const Constant& whole, const Constant& part,
                    const Sample& sample) const {
    if (part.type != whole.type || part.shape.size() != whole.shape.size()) refuse_constant(name, sample);
    if (part.shape == whole.shape) {
      if (!(part.bytes == whole.bytes)) refuse_constant(name, sample);
      return;
    }
    for (size_t d = 0; d < part.shape.size(); ++d) {
      if (part.shape[d] < 1 || part.shape[d] > whole.shape[d]) refuse_constant(name, sample);
    }
    if (!(runtime::corner_of(name, whole, part.shape).bytes == part.bytes)) refuse_constant(name, sample);
  }

  std::vector<Polynomial> sizes_of_corner(const std::string& name, size_t rank) const {
    std::vector<Polynomial> sizes;
    for (size_t d = 0; d < rank; ++d) {
      std::vector<int64_t> values;
      for (const Sample& sample : samples_) values.push_back(sample.plan.constants.at(name).shape[d]);
      sizes.push_back(follow(values, [&](size_t s) { refuse_constant(name, samples_[s]); }));
    }
    return sizes;
  }

  const graph::Graph& graph_;
  SizeGrid grid_;
  size_t on_grid_ = 0;  ///< the first samples, in the order of the grid's points
  std::vector<Sample> samples_;
  runtime::SymbolicNumbers found_;
};

}  // namespace

Plan lower_free(const graph::Graph& graph, const LowerPlain& lower) {
  return Joiner(graph, lower).run();
}

}  // namespace ulp::lowering
