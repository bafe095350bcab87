// Graphs in files by strangers: what loads runs without harm, and what does not says why.
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "temp_folder.h"
#include "ulp/graph/graph_module.h"
#include "ulp/io/graph_file.h"

namespace {

using namespace ulp;
using Json = nlohmann::json;

class HostileGraph : public TempFolder {
 protected:
  std::shared_ptr<graph::GraphModule> load(const Json& json, const io::NamedTensors& tensors = {}) {
    io::save_tensors(at("model"), tensors, {{io::kGraphKey, json.dump()}});
    return io::load_graph(at("model"));
  }
  void refused(const std::string& says, const Json& json, const io::NamedTensors& tensors = {}) {
    expect_file_error(says, [&] { load(json, tensors); });
  }
};

Json value(const std::string& name) {
  return {{"value", name}};
}

Json size(Json rest) {
  return {{"size", {{"numerator", 0}, {"denominator", 1}, {"offset", 0}, {"rest", std::move(rest)}}}};
}

/// A call whose one result has its name.
Json call_json(const std::string& target, Json args, const std::string& name = "y") {
  return {{"name", name},
          {"target", target},
          {"args", std::move(args)},
          {"outputs", Json::array({{{"name", name}}})}};
}

/// A graph of x[N, 4] with these calls.
Json graph_json(Json calls, Json result) {
  const Json batch = {{"numerator", 1}, {"denominator", 1}, {"offset", 0}};
  const Json input = {
      {"name", "x"},
      {"target", "x"},
      {"batch_dim", 0},
      {"args", Json::array()},
      {"outputs", Json::array({{{"name", "x"}, {"meta", {{"dtype", "Float"}, {"sizes", {batch, 4}}}}}})}};
  return {{"version", 1},
          {"inputs", Json::array({input})},
          {"attributes", Json::array()},
          {"reads", Json::array()},
          {"calls", std::move(calls)},
          {"free", Json::array()},
          {"result", std::move(result)}};
}

Json one_call(const std::string& target, Json args) {
  return graph_json(Json::array({call_json(target, std::move(args))}), value("y"));
}

/// A graph that gives back x, with these attributes.
Json with_attributes(Json attributes) {
  Json json = graph_json(Json::array(), value("x"));
  json["attributes"] = std::move(attributes);
  return json;
}

TEST_F(HostileGraph, OperatorsThatReachOutsideAreRefused) {
  const Json sizes = {{"ints", {1 << 20, 10}}}, strides = {{"ints", {4096, 1}}};
  refused("checks what it is given and only computes, got 'aten::_reshape_alias'",
          one_call("aten::_reshape_alias", {value("x"), sizes, strides}));
  refused("got 'aten::resize_'", one_call("aten::resize_", {value("x"), sizes, nullptr}));
  for (const char* target : {"aten::_sparse_coo_tensor_unsafe",
                             "aten::_nested_view_from_buffer",
                             "aten::_unsafe_index.Tensor",
                             "aten::_print",
                             "aten::_assert_async",
                             "aten::_embedding_bag",
                             "aten::_weight_norm_interface",
                             "aten::__nothing__",
                             "aten::sparse_coo_tensor.indices",
                             "aten::set_.source_Tensor",
                             "aten::set_",
                             "aten::set.source_Tensor",
                             "aten::set_data",
                             "aten::resize_as_",
                             "aten::resize",
                             "aten::from_file",
                             "aten::from_file.out",
                             "aten::record_stream",
                             "aten::max_pool2d_with_indices_backward",
                             "aten::embedding_dense_backward",
                             "aten::native_layer_norm_backward",
                             "aten::native_batch_norm",
                             "aten::native_batch_norm.out",
                             "aten::batch_norm_update_stats",
                             "aten::segment_reduce",
                             "aten::ctc_loss.IntList",
                             "aten::mkldnn_rnn_layer",
                             "aten::",
                             "aten::."}) {
    // "aten::" and "aten::." name nothing, which the dispatcher says.
    refused(std::string("got '") + target + "'", one_call(target, Json::array({value("x")})));
  }
  refused("of aten or ulp, got 'atenx::relu'", one_call("atenx::relu", Json::array({value("x")})));
}

TEST_F(HostileGraph, OperatorsThatModelsCallAreNot) {
  const at::Tensor x = torch::arange(8.0).view({2, 4});
  const auto result = [&](const std::string& target, const Json& args) {
    return load(one_call(target, args))->forward({x});
  };
  const Json pads = {{"ints", {1, 1}}};
  EXPECT_TRUE(result("aten::_softmax", {value("x"), 1, false}).equal(x.softmax(1)));
  EXPECT_TRUE(result("aten::_pad_enum", {value("x"), pads, 0, nullptr}).equal(at::_pad_enum(x, {1, 1}, 0)));
  EXPECT_TRUE(result("aten::_unsafe_view", {value("x"), {{"ints", Json::array({-1})}}}).equal(x.view(-1)));
  EXPECT_TRUE(
      result("aten::as_strided", {value("x"), {{"ints", {4, 2}}}, {{"ints", {1, 4}}}, nullptr}).equal(x.t()));
  Json chunks = call_json("aten::unsafe_chunk", {value("x"), 2, 1});
  chunks["outputs"] = {{{"name", "left"}}, {{"name", "right"}}};
  EXPECT_TRUE(load(graph_json(Json::array({chunks}), value("right")))->forward({x}).equal(x.slice(1, 2)));
}

TEST_F(HostileGraph, ViewsOutsideOfMemoryFailWhenTheyRun) {
  const Json far = {{"ints", {1 << 20, 10}}}, steps = {{"ints", {4096, 1}}};
  const auto model = load(one_call("aten::as_strided", {value("x"), far, steps, nullptr}));
  EXPECT_THROW(model->forward({torch::ones({2, 4})}), Error);
}

TEST_F(HostileGraph, ArgumentsAreOfTheKindThatTheOperatorTakes) {
  const Json ints = {{"list", Json::array({1, value("x")})}}, flag = {{"training", true}},
             one = {{"list", Json::array({1})}},
             type = {{"dtype", Json::array({value("x")})}, {"at_capture", 6}},
             both = {{"by_mode", Json::array({1, "two"})}};
  refused("expected a int as 'dim' of 'y', got a tensor",
          one_call("aten::sum.dim_IntList", {value("x"), ints}));
  refused("got the training flag", one_call("aten::sum.dim_IntList", {value("x"), flag}));
  refused("expected a bool as 'keepdim' of 'y', got a list",
          one_call("aten::sum.dim_IntList", {value("x"), one, one}));
  refused("expected a int as 'dim' of 'y', got a str", one_call("aten::softmax.int", {value("x"), both}));
  refused("got a dtype", one_call("aten::hardtanh", {value("x"), type}));
  refused("got a size", one_call("aten::gelu", {value("x"), size(Json::array())}));
  const Json tuple = {{"tuple", Json::array({1})}};
  refused("got an argument of another kind", one_call("aten::sum.dim_IntList", {value("x"), tuple}));
  const at::Tensor x = torch::arange(8.0).view({2, 4});
  EXPECT_TRUE(load(one_call("aten::sum.dim_IntList", {value("x"), one}))->forward({x}).equal(x.sum(1)));
}

TEST_F(HostileGraph, ArgumentsThatLibTorchTrustsAreHeldAgainstTheTensors) {
  const at::Tensor x = torch::arange(8.0).view({2, 4});
  const auto transform = [&](const Json& dims, int normalization) {
    Json back = call_json("aten::view_as_real", Json::array({value("y")}), "z");
    return load(graph_json(
        Json::array({call_json("aten::_fft_r2c", {value("x"), {{"ints", dims}}, normalization, true}), back}),
        value("z")));
  };
  EXPECT_TRUE(transform({1}, 0)->forward({x}).equal(at::view_as_real(at::_fft_r2c(x, {1}, 0, true))));
  const auto says = [&](const std::shared_ptr<graph::GraphModule>& model) {
    try {
      model->forward({x});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(
      says(transform({1}, 7)).find("expected a normalization of 0 to 2, got 7: node aten::_fft_r2c 'y'"),
      std::string::npos);
  EXPECT_NE(says(transform({1, 1}, 0)).find("expected a transform along each of 2 dimensions once"),
            std::string::npos);
  const auto differences = load(one_call("aten::diff", {value("x"), 65, 1, nullptr, nullptr}));
  EXPECT_NE(says(differences).find("expected a count of at most 64, got 65"), std::string::npos);
}

TEST_F(HostileGraph, PowersOfSizesAreFewAndSmall) {
  const auto view = [](const Json& terms) {
    return one_call("aten::view", {value("x"), {{"list", {size(terms), 4}}}});
  };
  const auto term = [](const Json& powers) { return Json::array({Json::array({1, 1, powers})}); };
  refused("powers from 0 to 4, got 2147483647", view(term(Json::array({2147483647}))));
  refused("powers from 0 to 4, got 5", view(term(Json::array({5}))));
  refused("powers from 0 to 4, got -1", view(term(Json::array({-1}))));
  refused("powers of at most 1 sizes, got 2", view(term(Json::array({1, 1}))));
  refused("denominators above 0", view(Json::array({Json::array({1, 0, Json::array({1})})})));
  const at::Tensor x = torch::ones({3, 4});
  EXPECT_TRUE(load(view(term(Json::array({1}))))->forward({x}).equal(x));
  Json free = view(term(Json::array({0, 1})));
  free["free"] = Json::array({{{"name", "time"},
                               {"min", 1},
                               {"max", 8},
                               {"multiple", 1},
                               {"places", Json::array({Json::array({0, 1})})}}});
  free["inputs"][0]["outputs"][0]["meta"]["sizes"][1] = size(term(Json::array({0, 1})))["size"];
  const at::Tensor square = torch::ones({4, 4});
  EXPECT_TRUE(load(free)->forward({square}).equal(square));
}

TEST_F(HostileGraph, NumbersAreWhatTheySay) {
  const auto times = [](const Json& number) { return one_call("aten::mul.Scalar", {value("x"), number}); };
  refused("at most 63 bits, got 18446744073709551615", times(18446744073709551615U));
  refused("at most 63 bits, got 9223372036854775808", times(9223372036854775808U));
  EXPECT_TRUE(load(times(9223372036854775807))->forward({torch::ones({1, 4})}).gt(9e18).all().item<bool>());
  const Json flags = {{"ints", Json::array({true})}}, parts = {{"ints", Json::array({0.5})}};
  refused("a whole number, got a boolean", one_call("aten::sum.dim_IntList", {value("x"), flags}));
  refused("a whole number, got a number", one_call("aten::sum.dim_IntList", {value("x"), parts}));
  Json json = graph_json(Json::array(), value("x"));
  json["version"] = true;
  refused("a whole number, got a boolean", json);
  json["version"] = 1.5;
  refused("a whole number, got a number", json);
}

TEST_F(HostileGraph, UndefinedTensorsStandWhereNoneIsNeeded) {
  const Json undefined = {{"undefined", true}};
  const Json norm = {value("x"), undefined, undefined, undefined, undefined, true, 0.1, 1e-5, false};
  const at::Tensor x = torch::arange(8.0).view({2, 4});
  const at::Tensor normalized = at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
  EXPECT_TRUE(load(one_call("aten::batch_norm", norm))->forward({x}).equal(normalized));
  refused("got a tensor that is undefined", one_call("aten::relu", Json::array({undefined})));
}

TEST_F(HostileGraph, ResultsHaveTensors) {
  for (const Json& result : {Json(nullptr), Json(5), Json("x"), Json{{"list", Json::array()}},
                             Json{{"tuple", Json::array({1})}}, Json{{"training", true}}})
    refused("a tensor as the result, got none", graph_json(Json::array(), result));
  const Json pair = {{"tuple", Json::array({value("x"), nullptr})}};
  EXPECT_EQ(load(graph_json(Json::array(), pair))->forward_all({torch::ones({2, 4})}).size(), 1U);
}

TEST_F(HostileGraph, NamesAreShortAndGivenOnce) {
  const auto nested = [](size_t dots) {
    std::string name;
    for (size_t i = 0; i < dots; ++i) name += "a.";
    return name + "w";
  };
  const auto attribute = [](const std::string& name) {
    return with_attributes(Json::array({{{"name", name}, {"kind", "parameter"}}}));
  };
  for (const size_t dots : {101, 100000})
    refused("at most 100 dots", attribute(nested(dots)), {{nested(dots), torch::ones({1})}});
  EXPECT_EQ(load(attribute(nested(100)), {{nested(100), torch::ones({1})}})->parameters().size(), 1U);
  const Json relu = call_json("aten::relu", Json::array({value("x")}));
  refused("a name of its own for each node", graph_json({relu, relu}, value("y")));
  Json other = relu;
  other["name"] = "x";
  refused("a name of its own for each node", graph_json(Json::array({other}), value("y")));
  other["name"] = "z";
  refused("a name of its own for each value", graph_json({relu, other}, value("y")));
  Json many = graph_json(Json(10001, nullptr), value("x"));
  refused("at most 10000 nodes, got 10002", many);
}

TEST_F(HostileGraph, StridesAreDense) {
  const auto laid_out = [](const Json& strides) {
    return with_attributes(Json::array({{{"name", "w"}, {"kind", "buffer"}, {"strides", strides}}}));
  };
  const io::NamedTensors tensors = {{"w", torch::arange(6.0).view({2, 3})}};
  for (const Json& strides : {Json({1, 1}), Json({0, 0}), Json({1, 3}), Json({3, 2}), Json({-3, 1}),
                              Json({1 << 30, 1}), Json({1}), Json({3, 1, 1}), Json::array()})
    refused("strides of 'w' that are dense", laid_out(strides), tensors);
  refused("a list of whole numbers", laid_out(1), tensors);
  refused("strides of 'w' that are dense", laid_out({1, 1}), {{"w", torch::ones({0, 1})}});
  const at::Tensor w = load(laid_out({1, 2}), tensors)->graph().find_attribute("w")->tensor;
  EXPECT_EQ(w.strides(), at::IntArrayRef({1, 2}));
  EXPECT_TRUE(w.equal(tensors[0].second));
  const Json last = Json::array({{{"name", "w"}, {"kind", "buffer"}, {"channels_last", true}}});
  refused("4 dimensions of 'w'", with_attributes(last), tensors);
  const auto image = load(with_attributes(last), {{"w", torch::ones({2, 3, 4, 5})}});
  EXPECT_TRUE(image->graph().find_attribute("w")->tensor.is_contiguous(at::MemoryFormat::ChannelsLast));
}

}  // namespace
