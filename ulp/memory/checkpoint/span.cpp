#include "ulp/memory/checkpoint/span.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "ulp/memory/checkpoint/min_cut.h"

namespace ulp::memory {
namespace {

/// Adds up memory, each once.
class Bytes {
 public:
  explicit Bytes(const CostTable& table) : table_(table) {}
  void add(int value) {
    const int base = table_.values[static_cast<size_t>(value)].base;
    if (base >= 0 && seen_.insert(base).second) sum_ += table_.values[static_cast<size_t>(base)].bytes;
  }
  void add_bytes(int64_t bytes) { sum_ += bytes; }
  bool has(int value) const { return seen_.contains(table_.values[static_cast<size_t>(value)].base); }
  int64_t sum() const { return sum_; }

 private:
  const CostTable& table_;
  std::unordered_set<int> seen_;
  int64_t sum_ = 0;
};

/// Memory that goes, piece by piece, as the backward goes through the calls of a span from its end to its
/// beginning.
class Timeline {
 public:
  Timeline(int begin, int end) : begin_(begin), until_(static_cast<size_t>(end - begin), 0) {}
  /// Gone when the backward has done the call.
  void add(int64_t bytes, int call) { until_[static_cast<size_t>(call - begin_)] += bytes; }
  /// The same for a memory that may have been added for an earlier call.
  void add_once(int base, int64_t bytes, int call) {
    if (seen_.insert(base).second) add(bytes, call);
  }
  int64_t sum() const { return std::accumulate(until_.begin(), until_.end(), int64_t{0}); }
  /// With the gradients of the moment.
  int64_t peak(const CostTable& table) const {
    int64_t there = 0, most = 0;
    for (size_t i = 0; i < until_.size(); ++i) {
      there += until_[i];
      most = std::max(most, there + table.gradients[static_cast<size_t>(begin_) + i]);
    }
    return most;
  }

 private:
  int begin_;
  std::vector<int64_t> until_;
  std::unordered_set<int> seen_;
};

class Span {
 public:
  Span(const CostTable& table, int begin, int end) : table_(table), begin_(begin), end_(end), there_(table) {
    for (int i = begin; i < end; ++i) {
      for (int value : call(i).results) {
        if (table.values[static_cast<size_t>(value)].last_read >= end) there_.add(value);
      }
    }
  }

  SpanOption keep_all() const {
    Bytes bytes = there_;
    Timeline timeline(begin_, end_);
    for (int i = begin_; i < end_; ++i) {
      for (int value : call(i).saved) add_saved(timeline, bytes, value, i);
      bytes.add_bytes(call(i).inner_bytes);
      timeline.add(call(i).inner_bytes, i);
    }
    return {.checkpointed = false, .kept_bytes = bytes.sum(), .peak_bytes = timeline.peak(table_)};
  }

  SpanOption keep_some(double bytes_per_second) {
    for (int i = begin_; i < end_; ++i) add_call(i, bytes_per_second);
    for (int i = begin_; i < end_; ++i) add_needs(i);
    return option(cut_.on_sink_side());
  }

 private:
  /// The vertices of a call: its run, that which only makes its inner values, and these.
  struct Vertices {
    int run, peek, inner;
  };

  const CostTable::Call& call(int i) const { return table_.calls[static_cast<size_t>(i)]; }
  /// Made in the span, and not there anyway for calls behind it.
  bool is_own(int value) const {
    const CostTable::Value& it = table_.values[static_cast<size_t>(value)];
    return it.made >= begin_ && it.base >= 0 && table_.values[static_cast<size_t>(it.base)].made >= begin_ &&
           !there_.has(value);
  }
  /// A view of memory that is there anyway costs nothing to keep.
  bool is_made_here(int value) const { return table_.values[static_cast<size_t>(value)].made >= begin_; }

  void add_call(int i, double bytes_per_second) {
    const CostTable::Call& it = call(i);
    Vertices made{cut_.add_vertex(), -1, -1};
    const auto cost = [&](double seconds) {
      return it.once ? MinCut::kInfinite : bytes_per_second * seconds;
    };
    cut_.add_edge(MinCut::kSource, made.run, cost(it.seconds));
    made.peek = made.run;
    if (it.inner_bytes > 0) {
      if (it.inner_seconds < it.seconds / 2) {
        made.peek = cut_.add_vertex();
        cut_.add_edge(MinCut::kSource, made.peek, cost(it.inner_seconds));
      }
      made.inner = cut_.add_vertex();
      cut_.add_edge(made.peek, made.inner, static_cast<double>(it.inner_bytes));
      cut_.add_edge(made.inner, MinCut::kSink, MinCut::kInfinite);
    }
    for (int value : it.results) {
      const int vertex = values_[value] = cut_.add_vertex();
      if (is_own(value))
        cut_.add_edge(made.run, vertex, static_cast<double>(table_.values[static_cast<size_t>(value)].bytes));
    }
    calls_.push_back(made);
  }

  void add_needs(int i) {
    const Vertices& made = calls_[static_cast<size_t>(i - begin_)];
    for (int value : call(i).reads) {
      if (!is_made_here(value)) continue;
      cut_.add_edge(values_.at(value), made.run, MinCut::kInfinite);
      if (made.peek != made.run) cut_.add_edge(values_.at(value), made.peek, MinCut::kInfinite);
    }
    for (int value : call(i).saved) {
      if (is_made_here(value)) cut_.add_edge(values_.at(value), MinCut::kSink, MinCut::kInfinite);
    }
  }

  /// A value that call `i` saves, unless an earlier one does: it is gone when the backward has done that
  /// call.
  void add_saved(Timeline& timeline, Bytes& bytes, int value, int i) const {
    if (!is_made_here(value)) return;
    const int base = table_.values[static_cast<size_t>(value)].base;
    if (base < 0 || table_.values[static_cast<size_t>(base)].made < begin_) return;
    bytes.add(base);
    timeline.add_once(base, table_.values[static_cast<size_t>(base)].bytes, i);
  }

  bool runs(const std::vector<bool>& needed, int i) const {
    return needed[static_cast<size_t>(calls_[static_cast<size_t>(i - begin_)].run)];
  }

  SpanOption option(const std::vector<bool>& needed) const {
    SpanOption found{.checkpointed = true};
    Bytes kept = there_;
    Timeline again(begin_, end_);
    for (int i = begin_; i < end_; ++i) {
      const Vertices& made = calls_[static_cast<size_t>(i - begin_)];
      for (int value : call(i).results) {
        if (!is_own(value) || !needed[static_cast<size_t>(values_.at(value))] || runs(needed, i)) continue;
        found.kept.push_back(value);
        kept.add(value);
      }
      if (runs(needed, i)) found.seconds += call(i).seconds;
      if (made.inner < 0) continue;
      if (needed[static_cast<size_t>(made.peek)]) {
        again.add(call(i).inner_bytes, i);
        if (made.peek != made.run) found.seconds += call(i).inner_seconds;
      } else {
        found.kept_inner.push_back(i);
        kept.add_bytes(call(i).inner_bytes);
      }
    }
    for (int i = begin_; i < end_; ++i) {
      for (int value : call(i).saved) {
        const CostTable::Value& it = table_.values[static_cast<size_t>(value)];
        if (is_own(value) && !kept.has(value)) again.add_once(it.base, it.bytes, i);
      }
    }
    const int64_t replay = again.sum() + passing(needed, kept) + table_.crossing[static_cast<size_t>(end_)];
    found.kept_bytes = kept.sum();
    found.peak_bytes = kept.sum() + std::max({again.peak(table_), replay, forward(kept)});
    return found;
  }

  /// The largest of what a replay computes on the way.
  int64_t passing(const std::vector<bool>& needed, const Bytes& kept) const {
    int64_t largest = 0;
    for (int i = begin_; i < end_; ++i) {
      if (!runs(needed, i)) continue;
      Bytes here(table_);
      for (int value : call(i).reads) {
        if (is_own(value) && !kept.has(value)) here.add(value);
      }
      for (int value : call(i).results) here.add(value);
      largest = std::max(largest, here.sum());
    }
    return largest;
  }

  /// The most that the forward has at once of what does not stay.
  int64_t forward(const Bytes& kept) const {
    int64_t largest = 0;
    for (int i = begin_; i < end_; ++i) {
      int64_t live = call(i).inner_bytes;
      for (int made = begin_; made <= i; ++made) {
        for (int value : call(made).results) {
          const CostTable::Value& it = table_.values[static_cast<size_t>(value)];
          if (it.base == value && it.last_read >= i && !kept.has(value)) live += it.bytes;
        }
      }
      largest = std::max(largest, live);
    }
    return largest;
  }

  const CostTable& table_;
  int begin_, end_;
  Bytes there_;  ///< values that calls behind the span read
  MinCut cut_;
  std::vector<Vertices> calls_;
  std::unordered_map<int, int> values_;  ///< their vertices
};

}  // namespace

SpanOption keep_all(const CostTable& table, int begin, int end) {
  return Span(table, begin, end).keep_all();
}

SpanOption keep_some(const CostTable& table, int begin, int end, double bytes_per_second) {
  return Span(table, begin, end).keep_some(bytes_per_second);
}

}  // namespace ulp::memory
