// Types made of tensors: what forward may take and return besides tensors and lists of them, and how a captured
// module takes and returns the same.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ulp/base/export.h"

namespace ulp::graph {

/// How a type is made of tensors. There are specialisations for at::Tensor; std::optional, std::vector, std::array,
/// std::tuple and std::pair of such types; std::map and std::unordered_map from std::string to them (in the order of
/// the keys); c10::Dict<std::string, at::Tensor>; and structs with ULP_TENSOR_FIELDS. One for another type has
///
///   static c10::IValue pack(const T& value);
///   static T unpack(const c10::IValue& packed, const std::string& where);
///
/// A packed value is a tensor, None, a list or a tuple. Names are packed as a tuple of pairs (name, value), see
/// pack_names(). unpack() throws ulp::Error naming the place `where` for anything that pack() does not give.
template <typename T>
struct TensorsOf;

/// A type that TensorsOf is specialised for.
template <typename T>
concept MadeOfTensors = requires(const T& value, const c10::IValue& packed, const std::string& where) {
  { TensorsOf<T>::pack(value) } -> std::same_as<c10::IValue>;
  { TensorsOf<T>::unpack(packed, where) } -> std::same_as<T>;
};

/// A packed value and its name.
using NamedValue = std::pair<std::string, c10::IValue>;

/// Values under names, as a tuple of pairs (name, value).
ULP_API c10::IValue pack_names(const std::vector<NamedValue>& items);
/// The values of such a tuple; throws ulp::Error naming `where` for any other value.
ULP_API std::vector<NamedValue> unpack_names(const c10::IValue& packed, const std::string& where);
/// The items of a list or a tuple; throws ulp::Error naming `where` for any other value, and for another
/// number of them than `count`, unless that is -1.
ULP_API std::vector<c10::IValue> unpack_items(const c10::IValue& packed, const std::string& where,
                                              int64_t count = -1);
/// The tensor, undefined for None; throws ulp::Error naming `where` for any other value.
ULP_API at::Tensor unpack_tensor(const c10::IValue& packed, const std::string& where);

/// The tensors of a packed value in order.
ULP_API std::vector<at::Tensor> packed_tensors(const c10::IValue& packed);
/// The same value with other tensors, in the same order; throws ulp::Error if there are not as many.
ULP_API c10::IValue replace_tensors(const c10::IValue& packed, const std::vector<at::Tensor>& tensors);
/// What a graph calls inputs of this form: "input" or "input_0", "input_1", and by their names where they have names:
/// "image", "pyramid.p3", "input_0.image".
ULP_API std::vector<std::string> input_names(const c10::IValue& packed);
/// Whether there are names in a packed value.
ULP_API bool has_names(const c10::IValue& packed);

/// A value as a list of tensors, as CaptureOptions::check takes them.
template <MadeOfTensors T>
std::vector<at::Tensor> flatten(const T& value) {
  return packed_tensors(TensorsOf<T>::pack(value));
}

/// Is shown the fields of a struct by its visit_tensors(), and packs them or unpacks them.
class ULP_API TensorVisitor {
 public:
  /// PrepackedWeights.
  TensorVisitor() = default;
  /// Unpacks; throws ulp::Error naming `where` for a value without names.
  TensorVisitor(const c10::IValue& packed, std::string where);

  /// Fields with their names, separated by commas.
  template <typename... T>
  void operator()(const char* names, T&... fields) {
    const std::vector<std::string> each = split(names, sizeof...(T));
    size_t i = 0;
    (visit(each[i++], fields), ...);
  }

  /// What has been packed.
  c10::IValue packed() const { return pack_names(items_); }
  /// Throws ulp::Error naming the names of a packed value that no field has.
  void finish() const;

 private:
  static std::vector<std::string> split(const char* names, size_t count);
  /// The value under a name; throws ulp::Error naming those that there are.
  const c10::IValue& take(const std::string& name);

  template <typename T>
  void visit(const std::string& name, T& field) {
    static_assert(MadeOfTensors<T>, "fields are tensors or made of tensors: see ulp::graph::TensorsOf");
    if (unpacks_) {
      field = TensorsOf<T>::unpack(take(name), where_.empty() ? name : where_ + "." + name);
    } else {
      items_.emplace_back(name, TensorsOf<T>::pack(field));
    }
  }

  bool unpacks_ = false;
  std::string where_;
  std::vector<NamedValue> items_;
  std::vector<bool> taken_;
};

/// A struct that lists its fields.
template <typename T>
concept HasTensorFields = std::default_initializable<T> && requires(T& value, TensorVisitor& visit) {
  value.visit_tensors(visit);
};

/// Inside a struct: `struct Detection { at::Tensor boxes, scores; ULP_TENSOR_FIELDS(boxes, scores) };`. The struct
/// stays an aggregate. Written by hand it is a function visit_tensors(ulp::graph::TensorVisitor& visit) with
/// visit("boxes", boxes).
#define ULP_TENSOR_FIELDS(...)                                \
  void visit_tensors(::ulp::graph::TensorVisitor& visit_it) { \
    visit_it(#__VA_ARGS__, __VA_ARGS__);                      \
  }

template <>
struct TensorsOf<at::Tensor> {
  static c10::IValue pack(const at::Tensor& value) { return value; }
  static at::Tensor unpack(const c10::IValue& packed, const std::string& where) {
    return unpack_tensor(packed, where);
  }
};

template <HasTensorFields T>
struct TensorsOf<T> {
  static c10::IValue pack(const T& value) {
    TensorVisitor visitor;
    const_cast<T&>(value).visit_tensors(visitor);  // it only reads
    return visitor.packed();
  }
  static T unpack(const c10::IValue& packed, const std::string& where) {
    T result{};
    TensorVisitor visitor(packed, where);
    result.visit_tensors(visitor);
    visitor.finish();
    return result;
  }
};

namespace detail {
/// Items of one type as a list, or as a tuple where they are no tensors.
template <typename List>
c10::IValue pack_list(const List& values) {
  using T = typename List::value_type;
  if constexpr (std::is_same_v<T, at::Tensor>) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& value : values) list.push_back(value);
    return list;
  } else {
    std::vector<c10::IValue> items;
    for (const T& value : values) items.push_back(TensorsOf<T>::pack(value));
    return c10::ivalue::Tuple::create(std::move(items));
  }
}

inline std::string item_of(const std::string& where, size_t index) {
  return where + "[" + std::to_string(index) + "]";
}

/// std::tuple and std::pair.
template <typename Tuple>
struct TupleTensors {
  static c10::IValue pack(const Tuple& value) {
    std::vector<c10::IValue> items;
    std::apply(
        [&](const auto&... item) {
          (items.push_back(TensorsOf<std::remove_cvref_t<decltype(item)>>::pack(item)), ...);
        },
        value);
    return c10::ivalue::Tuple::create(std::move(items));
  }
  static Tuple unpack(const c10::IValue& packed, const std::string& where) {
    return unpack(unpack_items(packed, where, std::tuple_size_v<Tuple>), where,
                  std::make_index_sequence<std::tuple_size_v<Tuple>>());
  }

 private:
  template <size_t... I>
  static Tuple unpack(const std::vector<c10::IValue>& items, const std::string& where,
                      std::index_sequence<I...>) {
    return Tuple{TensorsOf<std::tuple_element_t<I, Tuple>>::unpack(items[I], item_of(where, I))...};
  }
};

/// Maps from names, in the order of the names.
template <typename Map>
struct MapTensors {
  using T = typename Map::mapped_type;
  static c10::IValue pack(const Map& value) {
    std::map<std::string, c10::IValue> sorted;
    for (const auto& [name, item] : value) sorted.emplace(name, TensorsOf<T>::pack(item));
    return pack_names({sorted.begin(), sorted.end()});
  }
  static Map unpack(const c10::IValue& packed, const std::string& where) {
    Map result;
    for (const auto& [name, item] : unpack_names(packed, where))
      result.emplace(name, TensorsOf<T>::unpack(item, where + "." + name));
    return result;
  }
};
}  // namespace detail

template <MadeOfTensors T>
struct TensorsOf<std::vector<T>> {
  static c10::IValue pack(const std::vector<T>& value) { return detail::pack_list(value); }
  static std::vector<T> unpack(const c10::IValue& packed, const std::string& where) {
    std::vector<T> result;
    for (const c10::IValue& item : unpack_items(packed, where))
      result.push_back(TensorsOf<T>::unpack(item, detail::item_of(where, result.size())));
    return result;
  }
};

template <MadeOfTensors T, size_t N>
struct TensorsOf<std::array<T, N>> {
  static c10::IValue pack(const std::array<T, N>& value) { return detail::pack_list(value); }
  static std::array<T, N> unpack(const c10::IValue& packed, const std::string& where) {
    const std::vector<c10::IValue> items = unpack_items(packed, where, N);
    std::array<T, N> result;
    for (size_t i = 0; i < N; ++i) result[i] = TensorsOf<T>::unpack(items[i], detail::item_of(where, i));
    return result;
  }
};

/// None where there is no value.
template <MadeOfTensors T>
struct TensorsOf<std::optional<T>> {
  static c10::IValue pack(const std::optional<T>& value) {
    return value ? TensorsOf<T>::pack(*value) : c10::IValue();
  }
  static std::optional<T> unpack(const c10::IValue& packed, const std::string& where) {
    return packed.isNone() ? std::nullopt : std::optional<T>(TensorsOf<T>::unpack(packed, where));
  }
};

template <MadeOfTensors... T>
struct TensorsOf<std::tuple<T...>> : detail::TupleTensors<std::tuple<T...>> {};

template <MadeOfTensors A, MadeOfTensors B>
struct TensorsOf<std::pair<A, B>> : detail::TupleTensors<std::pair<A, B>> {};

template <MadeOfTensors T>
struct TensorsOf<std::map<std::string, T>> : detail::MapTensors<std::map<std::string, T>> {};

template <MadeOfTensors T>
struct TensorsOf<std::unordered_map<std::string, T>>
    : detail::MapTensors<std::unordered_map<std::string, T>> {};

template <>
struct ULP_API TensorsOf<c10::Dict<std::string, at::Tensor>> {
  static c10::IValue pack(const c10::Dict<std::string, at::Tensor>& value);
  static c10::Dict<std::string, at::Tensor> unpack(const c10::IValue& packed, const std::string& where);
};

}  // namespace ulp::graph
