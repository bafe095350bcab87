// Archives from strangers: whatever is wrong is an error that names the file and the place.
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "changed_pt2.h"
#include "ulp/graph/graph_module.h"

namespace ulp::test {

namespace {

using exchange::import_pt2;
using Json = nlohmann::json;

}  // namespace

class ReadPt2 : public ChangedPt2 {};

TEST_F(ReadPt2, TheUnchangedEntriesAreAnArchive) {
  write_pt2(folder_ / "m.pt2", entries_);
  EXPECT_EQ(import_pt2(folder_ / "m.pt2")->forward_all({torch::zeros({2, 2, 4, 4})}).size(), 2U);
}

TEST_F(ReadPt2, RefusesEveryTruncation) {
  const std::string bytes = file_bytes(golden_pt2("images.pt2"));
  for (size_t size = 0; size < bytes.size(); size += size < 64 || size + 64 > bytes.size() ? 1 : 499)
    EXPECT_SAYS(error_of([&] { import_pt2(std::string_view(bytes).substr(0, size), "cut.pt2"); }), "cut.pt2");
}

TEST_F(ReadPt2, NamesStayInsideTheArchive) {
  for (const char* name : {"m/../../etc/x", "/m/x", "m\\x", "other/x", "alone", "m/./x"}) {
    std::map<std::string, std::string> placed;
    for (const auto& [entry, content] : entries_) placed["m/" + entry] = content;
    placed[name] = "x";
    write_zip(folder_ / "m.pt2", placed);
    EXPECT_SAYS(error_of([&] { import_pt2(folder_ / "m.pt2"); }), "m.pt2") << name;
  }
}

TEST_F(ReadPt2, CompressedEntriesAndPicklesAreNeverRead) {
  std::map<std::string, std::string> placed;
  for (const auto& [entry, content] : entries_) placed["m/" + entry] = content;
  placed["m/models/model.json"].append(1'000'000, ' ');
  write_zip(folder_ / "m.pt2", placed, ZIP_CM_DEFLATE);
  EXPECT_SAYS(error_of([&] { import_pt2(folder_ / "m.pt2"); }), "which is compressed");
  change_tensor("head.weight", [](Json& one) { one["use_pickle"] = true; });
  EXPECT_SAYS(error_of_entries(), "'head.weight' as a pickle");
}

TEST_F(ReadPt2, OtherArchivesAreRefusedByName) {
  entries_["archive_version"] = "7";
  EXPECT_SAYS(error_of_entries(), "expected version 0 of the archive");
  entries_["archive_version"] = "0";
  entries_["byteorder"] = "big";
  EXPECT_SAYS(error_of_entries(), "little-endian");
  entries_["byteorder"] = "little";
  entries_["models/second.json"] = "{}";
  EXPECT_SAYS(error_of_entries(), "expected an archive of one program");
  entries_.erase("models/second.json");
  entries_.erase("archive_format");
  EXPECT_SAYS(error_of_entries(), "archive_format");
}

TEST_F(ReadPt2, TensorsThatLieAreRefused) {
  const auto entries = entries_;
  const auto refused = [&](const std::function<void(Json&)>& edit, const char* part) {
    entries_ = entries;
    change_tensor("head.weight", [&](Json& one) { edit(one["tensor_meta"]); });
    EXPECT_SAYS(error_of_entries(), part);
  };
  refused([](Json& meta) { meta["sizes"][0] = {{"as_int", 4000}}; }, "'head.weight'");
  refused([](Json& meta) { meta["sizes"][0] = {{"as_int", -1}}; }, "'head.weight'");
  refused([](Json& meta) { meta["sizes"][0] = {{"as_int", int64_t{1} << 62}}; }, "'head.weight'");
  refused([](Json& meta) { meta["strides"][0] = {{"as_int", int64_t{1} << 62}}; }, "'head.weight'");
  refused([](Json& meta) { meta["strides"][0] = {{"as_int", -3}}; }, "'head.weight'");
  refused([](Json& meta) { meta["storage_offset"] = {{"as_int", 1}}; }, "'head.weight'");
  refused([](Json& meta) { meta["storage_offset"] = {{"as_expr", {{"expr_str", "s0"}}}}; }, "expression");
  refused(
      [](Json& meta) {
        meta["sizes"][0] = {{"as_int", 1e300}};
      },
      "expected a whole number of 64 bits, got 1e+300");
  refused(
      [](Json& meta) {
        meta["sizes"][0] = {{"as_int", 10.5}};
      },
      "expected a whole number of 64 bits, got 10.5");
  refused(
      [](Json& meta) {
        meta["storage_offset"] = {{"as_int", uint64_t{1} << 63}};
      },
      "of 64 bits, got 9223372036854775808");
  refused([](Json& meta) { meta["dtype"] = 99; }, "type 99");
  refused([](Json& meta) { meta.erase("layout"); }, "layout");
  // Many numbers out of one.
  refused(
      [](Json& meta) {
        meta["sizes"] = Json::array({{{"as_int", 1'000'000'000}}});
        meta["strides"] = Json::array({{{"as_int", 0}}});
      },
      "'head.weight'");
  entries_ = entries;
  change_tensor("head.weight", [](Json& one) { one["path_name"] = "../../../weight"; });
  EXPECT_SAYS(error_of_entries(), "../../../weight");
  entries_ = entries;
  entries_["data/weights/weight_0"].resize(5);
  EXPECT_SAYS(error_of_entries(), "weight_0");
}

TEST_F(ReadPt2, AnEntryHasWholeNumbersOfEachTypeThatItIsReadAs) {
  const auto read_as = [&](int type) {
    change("data/weights/model_weights_config.json", [&](Json& json) {
      json["config"]["norm.running_var"] = json["config"]["norm.running_mean"];
      json["config"]["norm.running_var"]["tensor_meta"]["dtype"] = type;
    });
    return error_of_entries();
  };
  constexpr int kDouble = 8, kBool = 12;
  entries_.at("data/weights/weight_6") = std::string("\0\0\x80\x3f\0\0\0\0\0\0\0\0", 12);  // 1, 0, 0
  EXPECT_SAYS(read_as(kDouble), "whole numbers of 8 bytes in 'data/weights/weight_6', got 12 bytes");
  EXPECT_SAYS(read_as(kBool), "expected 0 and 1 as the bools of 'data/weights/weight_6'");
}

TEST_F(ReadPt2, NamesOfOneMemoryShareIt) {
  change("data/weights/model_weights_config.json", [](Json& json) {
    json["config"]["norm.running_var"] = json["config"]["norm.running_mean"];
    json["config"]["norm.bias"] = json["config"]["norm.weight"];
  });
  write_pt2(folder_ / "m.pt2", entries_);
  const auto module = import_pt2(folder_ / "m.pt2");
  const auto parameters = module->named_parameters(/*recurse=*/true), buffers = module->named_buffers();
  EXPECT_EQ(buffers["norm.running_mean"].data_ptr(), buffers["norm.running_var"].data_ptr());
  EXPECT_NE(buffers["norm.running_mean"].data_ptr(), buffers["shift"].data_ptr());
  const auto results = module->forward_all({torch::randn({2, 2, 4, 4})});
  results[0].square().mean().backward();
  const at::Tensor tied = parameters["norm.weight"];
  EXPECT_TRUE(tied.grad().defined());
  EXPECT_TRUE(!parameters.contains("norm.bias") || parameters["norm.bias"].is_same(tied)) << "one parameter";
}

TEST_F(ReadPt2, NodesAreNamedInErrors) {
  const auto entries = entries_;
  const auto refused = [&](const std::string& node, const std::function<void(Json&)>& edit,
                           const char* part) {
    entries_ = entries;
    change_node(node, edit);
    const std::string error = error_of_entries();
    EXPECT_SAYS(error, "node '" + node + "'");
    EXPECT_SAYS(error, part);
  };
  refused(
      "relu", [](Json& node) { node["target"] = "torch.ops.aten.no_such_operator.default"; }, "LibTorch has");
  refused(
      "relu", [](Json& node) { node["target"] = "torch.ops.aten.set_.source_Tensor"; }, "only computes");
  refused(
      "relu", [](Json& node) { node["target"] = "torch.ops.mylib.relu.default"; }, "operators of aten");
  refused(
      "relu", [](Json& node) { node["target"] = "os.system"; }, "operators of aten");
  refused(
      "relu", [](Json& node) { node["inputs"][0]["name"] = "nobody"; }, "'nobody'");
  refused(
      "relu", [](Json& node) { node["inputs"] = Json::array(); }, "expected the argument 'self'");
  refused(
      "relu",
      [](Json& node) {
        node["inputs"][0]["arg"] = {{"as_string", "x"}};
      },
      "as_string");
  refused(
      "relu", [](Json& node) { node["inputs"][0]["arg"]["as_tensor"]["name"] = "later"; }, "'later'");
  refused(
      "conv2d",
      [](Json& node) {
        node["inputs"][3]["arg"] = {{"as_ints", {1, 2, 3, 4}}};
      },
      "conv2d");
  refused(
      "conv2d",
      [](Json& node) {
        node["inputs"][3]["arg"] = {{"as_floats", {1.5}}};
      },
      "as_floats");
  refused(
      "relu", [](Json& node) { node["outputs"].push_back(node["outputs"][0]); }, "expected 1 results");
  refused(
      "relu",
      [](Json& node) {
        node["inputs"][0]["arg"] = {{"as_tensor", Json::object()}};
      },
      "'name'");
}

TEST_F(ReadPt2, ErrorsNameAFileWhoseNameBeginsThatOfANode) {
  change_node("relu", [](Json& node) { node["target"] = "torch.ops.aten.no_such_operator.default"; });
  write_pt2(folder_ / "m.pt2", entries_);
  const std::string bytes = file_bytes(folder_ / "m.pt2");
  EXPECT_SAYS(error_of([&] { import_pt2(bytes, "re"); }), "'re': node 'relu'");
}

TEST_F(ReadPt2, WhatLibTorchRefusesOutsideOfNodesNamesTheFile) {
  // A buffer whose elements are one cannot be written.
  change_tensor("norm.running_mean", [](Json& one) { one["tensor_meta"]["strides"][0] = {{"as_int", 0}}; });
  change_program([](Json& json) {
    Json& signature = json["graph_module"]["signature"];
    std::string variance;
    for (const Json& input : signature["input_specs"]) {
      if (input.contains("buffer") && input["buffer"]["buffer_name"] == "norm.running_var")
        variance = input["buffer"]["arg"]["name"];
    }
    signature["output_specs"].push_back(
        {{"buffer_mutation", {{"arg", {{"name", variance}}}, {"buffer_name", "norm.running_mean"}}}});
  });
  EXPECT_SAYS(error_of_entries(), "single memory location");
}

TEST_F(ReadPt2, PartsOfAProgramAreCounted) {
  change_program([](Json& json) {
    Json& inputs = json["graph_module"]["signature"]["input_specs"];
    Json parameter;
    for (const Json& input : inputs) {
      if (input.contains("parameter")) parameter = input;
    }
    for (int i = 0; i < 10'001; ++i) inputs.push_back(parameter);
  });
  EXPECT_SAYS(error_of_entries(), "expected at most 10000 tensors, got 10012");
}

TEST_F(ReadPt2, MemoryIsBounded) {
  const auto entries = entries_;
  const auto ones = [&](const char* target, const Json& sizes) {
    entries_ = entries;
    change_node("relu", [&](Json& node) {
      node["target"] = target;
      node["inputs"] = {{{"name", "self"}, {"arg", {{"as_tensor", {{"name", "batch_norm"}}}}}, {"kind", 1}},
                        {{"name", "size"}, {"arg", {{"as_ints", sizes}}}, {"kind", 1}}};
    });
    return error_of_entries({.max_bytes = 1 << 20});
  };
  EXPECT_SAYS(ones("torch.ops.aten.new_ones.default", {1 << 20}), "1048576 bytes");
  EXPECT_SAYS(ones("torch.ops.aten.new_ones.default", {int64_t{1} << 40}), "node 'relu'");
  entries_ = entries;
  change_node("relu", [](Json& node) {
    node["target"] = "torch.ops.aten.repeat.default";
    node["inputs"].push_back(
        {{"name", "repeats"}, {"arg", {{"as_ints", {1000, 1000, 1000, 1000}}}}, {"kind", 1}});
  });
  EXPECT_SAYS(error_of_entries({.max_bytes = 1 << 20}), "node 'relu'");
}

TEST_F(ReadPt2, ListsOfTensorsAreBounded) {
  const auto entries = entries_;
  const auto split = [&](const char* target, const char* argument, const Json& value) {
    entries_ = entries;
    change_node("relu", [&](Json& node) {
      node["target"] = target;
      node["inputs"] = {{{"name", "self"}, {"arg", {{"as_tensor", {{"name", "batch_norm"}}}}}, {"kind", 1}},
                        {{"name", argument}, {"arg", value}, {"kind", 1}}};
    });
    return error_of_entries();
  };
  for (const int64_t count : {int64_t{10'001}, int64_t{1} << 30, std::numeric_limits<int64_t>::max()}) {
    const Json number = {{"as_int", count}};
    EXPECT_SAYS(split("torch.ops.aten.tensor_split.sections", "sections", number),
                "10000 tensors in the lists");
    EXPECT_SAYS(split("torch.ops.aten.chunk.default", "chunks", number), "10000 tensors in the lists");
  }
  EXPECT_SAYS(split("torch.ops.aten.tensor_split.tensor_indices_or_sections", "tensor_indices_or_sections",
                    {{"as_tensor", {{"name", "sym"}}}}),
              "node 'relu'");
  // Views of 2^20 rows, whose memory is that of one tensor.
  entries_ = entries;
  change_node("batch_norm", [](Json& node) {
    node["target"] = "torch.ops.aten.new_ones.default";
    node["inputs"] = {{{"name", "self"}, {"arg", {{"as_tensor", {{"name", "conv2d"}}}}}, {"kind", 1}},
                      {{"name", "size"}, {"arg", {{"as_ints", {1 << 20}}}}, {"kind", 1}}};
  });
  const auto of_rows = entries_;
  for (const char* target : {"torch.ops.aten.unbind.int", "torch.ops.aten.split.Tensor"}) {
    entries_ = of_rows;
    change_node("relu", [&](Json& node) {
      node["target"] = target;
      if (std::string(target).find("split") != std::string::npos)
        node["inputs"].push_back({{"name", "split_size"}, {"arg", {{"as_int", 1}}}, {"kind", 1}});
    });
    EXPECT_SAYS(error_of_entries(), "10000 tensors in the lists");
  }
}

TEST_F(ReadPt2, ExamplesAreBoundedTogether) {
  const auto entries = entries_;
  const auto with_sizes = [&](const Json& sizes, int64_t max_bytes) {
    entries_ = entries;
    change_program([&](Json& json) { json["graph_module"]["graph"]["tensor_values"]["x"]["sizes"] = sizes; });
    return error_of_entries({.max_bytes = max_bytes});
  };
  const Json zero = {{"as_int", 0}}, large = {{"as_int", int64_t{1} << 40}};
  EXPECT_SAYS(with_sizes({zero, large, large}, int64_t{1} << 40), "inputs of 1099511627776 bytes at most");
  entries_ = entries;
  change_program([](Json& json) {
    Json& values = json["graph_module"]["graph"]["tensor_values"];
    values["x"]["sizes"] = {{{"as_int", 2}}, {{"as_int", 2}}, {{"as_int", 128}}, {{"as_int", 128}}};
    values["second"] = values["x"];
    Json& inputs = json["graph_module"]["signature"]["input_specs"];
    inputs.push_back({{"user_input", {{"arg", {{"as_tensor", {{"name", "second"}}}}}}}});
  });
  EXPECT_SAYS(error_of_entries({.max_bytes = 300'000}),
              "inputs of 300000 bytes at most, got more with 'second'");
}

TEST_F(ReadPt2, DeepAndDamagedDescriptionsAreRefused) {
  const std::string program = entries_.at("models/model.json");
  entries_["models/model.json"] = std::string(100'000, '[');
  EXPECT_SAYS(error_of_entries(), "description");
  entries_["models/model.json"] = program.substr(0, program.size() / 2);
  EXPECT_SAYS(error_of_entries(), "description");
  for (const char* field : {"graph_module", "schema_version", "range_constraints"}) {
    entries_["models/model.json"] = program;
    change_program([&](Json& json) { json.erase(field); });
    EXPECT_SAYS(error_of_entries(), field);
  }
  entries_["models/model.json"] = program;
  change_program([](Json& json) { json["schema_version"]["major"] = 99; });
  EXPECT_SAYS(error_of_entries(), "got 99");
}

TEST_F(ReadPt2, InputsThatHaveNoFormAreRefused) {
  const auto entries = entries_;
  const auto refused = [&](const std::string& text, const char* part) {
    entries_ = entries;
    change_program([&](Json& json) {
      json["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0] = {{"as_expr", {{"expr_str", text}}}};
    });
    EXPECT_SAYS(error_of_entries(), part);
  };
  refused("Add(Symbol('s0', integer=True), Integer(1))", "Add(Symbol");
  refused("Mul(Integer(99999999999999999999), Symbol('s0'))", "multiples of one");
  refused("", "multiples of one");
  refused("Mul(Integer(16777217), Symbol('s77', positive=True, integer=True))", "multiples of one");
}

TEST_F(ReadPt2, AFreeSizeIsAMultipleOfBothThatAreAskedFor) {
  change_program([](Json& json) {
    json["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][2] = {
        {"as_expr", {{"expr_str", "Mul(Integer(2), Symbol('h', positive=True, integer=True))"}}}};
  });
  write_pt2(folder_ / "m.pt2", entries_);
  const auto module =
      import_pt2(folder_ / "m.pt2", {.sizes = {{"x.2", {.min = 1, .max = 24, .multiple = 3}}}});
  ASSERT_EQ(std::as_const(*module).graph().free.size(), 1U);
  EXPECT_EQ(std::as_const(*module).graph().free[0].multiple, 6);
}

TEST_F(ReadPt2, ASmallestSizeBelowThatOfTheExportIsRefused) {
  change_program([](Json& json) {
    json["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][2] = {
        {"as_expr", {{"expr_str", "Mul(Integer(2), Symbol('h', positive=True, integer=True))"}}}};
    json["range_constraints"]["h"] = {{"min_val", 3}, {"max_val", 10}};
  });
  write_pt2(folder_ / "m.pt2", entries_);
  const auto refusal = [&](exchange::SizeRange range) {
    return error_of([&] { import_pt2(folder_ / "m.pt2", {.sizes = {{"x.2", range}}}); });
  };
  EXPECT_SAYS(refusal({.min = 4, .max = 20}), "'x.2' of at least 6, as it was exported, got 4");
  EXPECT_SAYS(refusal({.min = 6, .max = 22}), "'x.2' of at most 20, as it was exported, got 22");
}

// 630 kB of this took a minute: each function of a number at each free size.
TEST_F(ReadPt2, FunctionsOfNumbersAreCountedForEachFreeSize) {
  constexpr int kCount = 320;
  change_program([](Json& json) {
    Json& graph = json["graph_module"]["graph"];
    for (int i = 0; i < kCount; ++i) {
      const std::string name = "given" + std::to_string(i);
      graph["tensor_values"][name] = graph["tensor_values"]["x"];
      graph["tensor_values"][name]["sizes"] = {{{"as_int", 1}}, {{"as_expr", {{"expr_str", "s" + name}}}}};
      json["graph_module"]["signature"]["input_specs"].push_back(
          {{"user_input", {{"arg", pt2_tensor(name)}}}});
    }
    Json nodes = graph["nodes"];
    for (int i = 0; i < kCount; ++i) {
      const std::string name = "half" + std::to_string(i);
      Json half = pt2_call("x", name, {{"a", pt2_number(i)}, {"b", pt2_number(2)}});
      half["target"] = "_operator.floordiv";
      half["outputs"] = {{{"as_sym_int", {{"as_name", name}}}}};
      nodes.push_back(half);
      // Numbers that nobody reads are not looked at.
      Json arguments = {{"self", pt2_tensor("x")},
                        {"size", {{"as_sym_ints", Json::array({Json{{"as_name", name}}})}}}};
      nodes.push_back(pt2_call("new_ones.default", "ones" + std::to_string(i), arguments));
    }
    graph["nodes"] = nodes;
  });
  EXPECT_SAYS(error_of_entries(), "expected at most 100000 functions of numbers for all free sizes together");
}

}  // namespace ulp::test
