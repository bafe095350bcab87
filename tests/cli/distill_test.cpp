// ulp distill as a user meets it: every scheme in a small run, what the other commands make of the result, runs that are
// ended and continued, and bad input.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tool.h"

namespace {

using nlohmann::json;
using ulp::test::expect_error;
using ulp::test::npy;
using ulp::test::Outcome;
using ulp::test::read_file;
using ulp::test::WithLeNet5;
using ulp::test::Workshop;
using ulp::test::write_file;

class Distill : public WithLeNet5 {
 protected:
  /// Few steps, without the student alone and latencies.
  static std::string quick(const std::string& args) {
    return "distill " + args +
           " --data data --batch 16 --max-steps 6 --lr 0.02 --threads 1 --no-latency --no-alone ";
  }
  static Outcome distill(const std::string& args) { return shop_->ulp(quick(args)); }
  static json result_of(const std::string& args) {
    const Outcome outcome = distill(args + " --json");
    EXPECT_EQ(outcome.code, 0) << args << ": " << outcome.err;
    return outcome.code == 0 ? json::parse(outcome.out) : json::object();
  }
  static std::vector<std::string> names_of(const json& result) {
    std::vector<std::string> names;
    for (const json& row : result["networks"]) names.push_back(row["model"].get<std::string>());
    return names;
  }
  static std::string bytes(const std::string& file) { return read_file(*shop_ / file); }
};

using Names = std::vector<std::string>;

TEST_F(Distill, AStudentIsTaughtAndComparedWithItselfAlone) {
  const Outcome outcome = shop_->ulp(
      "distill m.safetensors --student mlp --data data --batch 16 --epochs 3 --lr 0.02 --threads 1 "
      "--no-latency "
      "--loss kd:T=4,alpha=0.1 --out s.safetensors --report report --save-recipe r.json --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(names_of(result), (Names{"teacher", "student alone", "student taught"}));
  EXPECT_EQ(result["file"], "s.safetensors");
  const json& rows = result["networks"];
  EXPECT_EQ(rows[0]["network"], "lenet5");
  EXPECT_EQ(rows[2]["network"], "mlp");
  EXPECT_TRUE(rows[0]["agrees with the teacher [%]"].is_null()) << rows[0];
  EXPECT_GT(rows[2]["accuracy [%]"].get<double>(), 30);
  EXPECT_GT(rows[2]["agrees with the teacher [%]"].get<double>(), 30);
  EXPECT_EQ(rows[1]["parameters"], rows[2]["parameters"]);
  EXPECT_NE(read_file(*shop_ / "report/report.html").find("What the student learns from"), std::string::npos);
  const json report = json::parse(bytes("report/report.json"));
  EXPECT_GE(report["charts"].size(), 3U);
  // The file is a model as any other.
  const Outcome eval = shop_->ulp("eval s.safetensors --data data --json");
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_NEAR(json::parse(eval.out)["accuracy_percent"].get<double>(), rows[2]["accuracy [%]"].get<double>(),
              1.6);
  EXPECT_EQ(shop_->ulp("quantize s.safetensors --data data --samples 64 --test 50 --out q.ulp").code, 0);
  // The recipe gives the same file.
  const json recipe = json::parse(bytes("r.json"));
  EXPECT_EQ(recipe["type"], "ulp.distill.Recipe");
  EXPECT_EQ(recipe["labels"], 0.1);
  const Outcome again = shop_->ulp(
      "distill m.safetensors --student mlp --data data --recipe r.json --threads 1 --no-latency --no-alone "
      "--out "
      "again.safetensors");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(bytes("s.safetensors") == bytes("again.safetensors"));
}

TEST_F(Distill, LossesBetweenPlacesRunInEachPrecision) {
  const std::string losses =
      "m.safetensors --student lenet5 --loss 'kd:T=8>2,alpha=0.5' --loss 'at:1000>0@conv2' --loss "
      "mse@fc1=fc2 "
      "--loss "
      "crd:0.1,dim=8,negatives=20@fc2 --out p.safetensors ";
  for (const char* flags : {"", "--precision bf16", "--precision fp16 --accumulate 2", "--optimizer adamw",
                            "--teacher-precision bf16"}) {
    const json result = result_of(losses + flags);
    EXPECT_EQ(names_of(result), (Names{"teacher", "student taught"})) << flags;
  }
}

TEST_F(Distill, EnginesAndEnsemblesTeach) {
  ASSERT_EQ(shop_->ulp("quantize m.safetensors --data data --samples 64 --test 50 --out t.ulp").code, 0);
  const json engine = result_of("t.ulp --student mlp --out e.safetensors");
  EXPECT_EQ(names_of(engine), (Names{"teacher", "student taught"}));
  EXPECT_EQ(engine["networks"][0]["network"], "lenet5, engine");
  ASSERT_EQ(distill("m.safetensors --student mlp --out n.safetensors").code, 0);
  const json both = result_of(
      "m.safetensors n.safetensors t.ulp --teacher-weights 2,1,1 --student mlp --out b.safetensors");
  EXPECT_EQ(names_of(both), (Names{"teacher lenet5", "teacher mlp", "teacher lenet5", "student taught"}));
  // One weight of all is that teacher alone.
  const json one =
      result_of("m.safetensors n.safetensors --teacher-weights 0,1 --student mlp --out one.safetensors");
  const json two = result_of("n.safetensors --student mlp --out two.safetensors");
  EXPECT_NEAR(one["networks"].back()["loss [nats]"].get<double>(),
              two["networks"].back()["loss [nats]"].get<double>(), 1e-4);
  expect_error(distill("m.safetensors n.safetensors --student mlp --loss at@fc1 --out x.safetensors"), 1,
               "the output alone from several teachers");
  expect_error(distill("t.ulp --student lenet5 --loss at@conv1 --out x.safetensors"), 1, "no values inside");
}

TEST_F(Distill, ChainsTeachOneAfterTheOther) {
  EXPECT_EQ(names_of(result_of(
                "m.safetensors --student mlp --assistant lenet5 --generations 2 --out c.safetensors")),
            (Names{"teacher", "assistant lenet5", "generation 1", "student taught"}));
}

TEST_F(Distill, NetworksLearnWithoutATeacher) {
  const json peers = result_of("--student mlp --peer lenet5 --peer mlp --out p.safetensors");
  EXPECT_EQ(names_of(peers), (Names{"student taught", "peer 1", "peer 2"}));
  EXPECT_EQ(peers["networks"][1]["network"], "lenet5");
  const json self =
      result_of("--student lenet5 --exits conv1,conv2 --exit-features conv2 --out e.safetensors");
  EXPECT_EQ(names_of(self), (Names{"student taught"}));
  for (const char* file : {"p.safetensors", "e.safetensors"})
    EXPECT_EQ(shop_->ulp(std::string("eval --data data ") + file).code, 0);
}

TEST_F(Distill, TheTeacherLabelsWhatHasNoLabels) {
  shop_->make_data("more", 48, 16);
  const std::string start = "m.safetensors --student mlp --out l.safetensors ";
  const auto notes = [&](const std::string& flags) { return result_of(start + flags)["notes"].dump(); };
  EXPECT_NE(notes("--labels 0.1").find("26 of 256 labels are used"), std::string::npos);
  const std::string hard = notes("--labels 0.1 --hard-labels 0.05");
  EXPECT_NE(hard.find("26 of 256 labels are used, and the teacher's class of 230 samples"), std::string::npos)
      << hard;
  EXPECT_EQ(notes("--labels 0.1 --hard-labels 1").find("class of 230 samples"), std::string::npos);
  for (const char* flags :
       {"--top 3", "--labels 0.2 --top 3", "--unlabelled more", "--labels 0.5 --unlabelled more",
        "--noise 0.3", "--labels 0.1 --loss dkd:warmup=0", "--labels 0.1 --loss crd:0.1,dim=8@fc1"})
    EXPECT_EQ(result_of(start + flags)["networks"].size(), 2U) << flags;
}

/// A note of two students stands once.
TEST_F(Distill, WhatIsSaidOfTheLabelsIsSaidOnce) {
  const Outcome outcome = shop_->ulp(
      "distill m.safetensors --student mlp --data data --batch 16 --max-steps 2 --threads 1 --no-latency "
      "--labels 0.1 --out l.safetensors --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["notes"], json::array({"26 of 256 labels are used"}));
}

TEST_F(Distill, TorchScriptTeachesAndLearns) {
  const std::string script = std::string(ULP_SOURCE_DIR) + "/tests/golden/torchscript/classifier.pt";
  const json learned = result_of("m.safetensors --student " + script +
                                 " --loss kd --loss mse@conv1=conv2 --out script.safetensors");
  EXPECT_EQ(learned["networks"][1]["network"], "classifier");
  EXPECT_EQ(names_of(result_of(script + " --student lenet5 --loss kd --loss at@conv1 --out y.safetensors")),
            (Names{"teacher", "student taught"}));
  for (const char* command : {"eval --data data script.safetensors", "lower script.safetensors --out s.ulp"})
    EXPECT_EQ(shop_->ulp(command).code, 0) << command;
  expect_error(distill("m.safetensors --student " + std::string(ULP_SOURCE_DIR) +
                       "/tests/golden/torchscript/traced.pt --out x.safetensors"),
               1, "");
}

TEST_F(Distill, ACacheAsksTheTeacherOnce) {
  const std::string start = "m.safetensors --student mlp --no-augment ";
  ASSERT_EQ(distill(start + "--out plain.safetensors").code, 0);
  const Outcome first = distill(start + "--teacher-cache cache --out first.safetensors");
  ASSERT_EQ(first.code, 0) << first.err;
  ASSERT_EQ(distill(start + "--teacher-cache cache --out second.safetensors").code, 0);
  EXPECT_TRUE(bytes("plain.safetensors") == bytes("first.safetensors"));
  EXPECT_TRUE(bytes("first.safetensors") == bytes("second.safetensors"));
  expect_error(distill("m.safetensors --student mlp --teacher-cache cache --out x.safetensors"), 1,
               "augment");
  EXPECT_EQ(distill(start + "--loss logits --teacher-cache cache --out third.safetensors").code, 0);
  expect_error(
      distill("first.safetensors --student mlp --no-augment --teacher-cache cache --out x.safetensors"), 3,
      "cache");
  // Other data of the same name.
  shop_->make_data("data2", 256, 64);
  std::string images = bytes("data2/train-images-idx3-ubyte");
  images[5000] ^= 1;
  write_file(*shop_ / "data2/train-images-idx3-ubyte", images);
  expect_error(shop_->ulp("distill m.safetensors --student mlp --no-augment --data data2 --max-steps 2 "
                          "--teacher-cache cache --out x.safetensors"),
               3, "cache");
  write_file(*shop_ / "broken", bytes("cache").substr(0, 100));
  expect_error(distill(start + "--teacher-cache broken --out x.safetensors"), 3, "broken");
}

TEST_F(Distill, AStudentStartsFromItsTeacher) {
  const json same = result_of("m.safetensors --student lenet5 --init --out i.safetensors");
  EXPECT_NE(same["notes"].dump().find("10 tensors were taken from the teacher, 0 were not"),
            std::string::npos)
      << same["notes"];
  const double agrees = same["networks"][1]["agrees with the teacher [%]"];
  EXPECT_GT(agrees, 70);
  expect_error(distill("m.safetensors --student mlp --init-layers encoder --out x.safetensors"), 1,
               "'encoder.0'");
  // A file is a student, too, from where it stands.
  const Outcome file = distill("m.safetensors --student i.safetensors --out j.safetensors");
  EXPECT_EQ(file.code, 0) << file.err;
}

TEST_F(Distill, CompressedNetworksLearnFromWhatTheyWere) {
  const std::string learns = " --data data --max-steps 4 --batch 16 --threads 1 --test 16 ";
  const std::string losses = "--loss kd:T=4,alpha=0.5 --loss crd:0.1,dim=8,negatives=20@fc2 ";
  for (const char* command : {"quantize m.safetensors --mode qat --out %.ulp ",
                              "prune m.safetensors --sparsity 0.5 --finetune --no-latency --out %.st "}) {
    std::vector<std::string> made;
    for (const char* name : {"first", "second"}) {
      std::string run = command;
      run.replace(run.find('%'), 1, name);
      const Outcome outcome = shop_->ulp(run + learns + losses);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      made.push_back(bytes(run.substr(run.find(name), run.rfind(' ') - run.find(name))));
    }
    EXPECT_TRUE(made[0] == made[1]) << command;
  }
  expect_error(shop_->ulp("prune m.safetensors --sparsity 0.5 --loss kd --out x.st --data data"), 1,
               "training");
}

TEST_F(Distill, TextsAreTaughtToo) {
  std::string book, lines;
  for (int i = 0; i < 100; ++i) {
    book += "line " + std::to_string(i * 7 % 100) + " of the book.\n";
    lines += i % 2 == 0 ? "good\ta fine day\n" : "bad\tan awful hour\n";
  }
  write_file(*shop_ / "book.txt", book);
  write_file(*shop_ / "lines.tsv", lines);
  const std::string few =
      " --batch 8 --max-steps 3 --threads 1 --no-latency --no-alone --out text.safetensors ";
  for (const auto& [model, data, losses] :
       {std::tuple("bert", "lines.tsv",
                   "--loss kd:T=2 --loss minilm@bert.encoder.layer.1 --loss "
                   "tinybert_attention@bert.encoder.layer.0.attention.self:scores "
                   "--init-layers bert.encoder.layer"),
        std::tuple("gpt2", "book.txt", "--loss kd:T=2,alpha=0.5")}) {
    const std::string train =
        std::string("train --model ") + model + " --data " + data +
        " --length 24 --batch 8 --max-steps 3 --threads 1 --out text_teacher.safetensors";
    ASSERT_EQ(shop_->ulp(train).code, 0);
    const Outcome outcome = shop_->ulp(std::string("distill text_teacher.safetensors --student ") + model +
                                       " --data " + data + few + losses);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
}

TEST_F(Distill, BadInputIsOneLine) {
  const std::string start = "m.safetensors --student lenet5 --out x.safetensors ";
  // Wrong use.
  expect_error(distill("m.safetensors --out x.safetensors"), 2, "--student");
  expect_error(distill("m.safetensors --student mlp"), 2, "--out");
  expect_error(distill("--student mlp --out x.safetensors"), 2, "a teacher, or --peer or --exits");
  expect_error(distill("--student mlp --unlabelled data --out x.safetensors"), 2,
               "a teacher, or --peer or --exits");
  expect_error(distill(start + "--peer mlp"), 2, "--peer is for networks without a teacher");
  expect_error(distill("--student mlp --peer mlp --exits fc1 --out x.safetensors"), 2, "exclude each other");
  expect_error(distill("--student mlp --peer mlp --loss kd --out x.safetensors"), 2, "need a teacher");
  expect_error(distill(start + "--loss kd --recipe r.json"), 2, "exclude each other");
  expect_error(distill(start + "--loss kid"), 2, "got 'kid'");
  expect_error(distill(start + "--loss kd:T=0"), 2, "T");
  expect_error(distill(start + "--loss kd:alpha=2"), 2, "alpha in [0, 1]");
  expect_error(distill(start + "--labels 0"), 2, "--labels");
  expect_error(distill(start + "--labels 2"), 2, "--labels");
  expect_error(distill(start + "--teacher-weights 1,2"), 2, "one for each of the 1 teachers");
  expect_error(distill(start + "--teacher-precision fp7"), 2, "fp7");
  expect_error(distill(start + "--resume"), 2, "--checkpoint");
  // What the networks do not have.
  expect_error(distill(start + "--loss at@conv7"), 1,
               "got 'conv7'; its outermost modules are conv1, conv2, fc1");
  expect_error(distill(start + "--loss at@conv1=conv7"), 1, "got 'conv7'");
  expect_error(distill(start + "--loss mse@conv1=fc1"), 1, "got shapes [16, 6,");
  expect_error(distill(start + "--loss minilm@conv1"), 1, "expected one attention in 'conv1'");
  expect_error(distill("--student lenet5 --exits conv7 --out x.safetensors"), 1, "got 'conv7'");
  expect_error(distill("--student mlp --peer mlp --labels 0.5 --out x.safetensors"), 1,
               "labels of all data without a teacher");
  expect_error(distill("--student mlp --peer mlp --unlabelled data --out x.safetensors"), 1,
               "labels of all data without a teacher");
  expect_error(distill(start + "--top 3 --loss at@conv1"), 1, "one loss of the output with stored labels");
  // Files.
  expect_error(distill("none.safetensors --student mlp --out x.safetensors"), 3, "none.safetensors");
  expect_error(distill("m.safetensors --student resnet99 --out x.safetensors"), 1,
               "or a file, got 'resnet99'");
  expect_error(distill(start + "--recipe none.json"), 3, "none.json");
  write_file(*shop_ / "bad.json", R"({"type": "ulp.distill.Recipe", "version": 1, "colour": 3})");
  expect_error(distill(start + "--recipe bad.json"), 3, "colour");
  write_file(*shop_ / "broken.safetensors", bytes("m.safetensors").substr(0, 300));
  expect_error(distill("broken.safetensors --student mlp --out x.safetensors"), 3, "broken.safetensors");
  expect_error(distill(start + "--unlabelled none"), 3, "none");
  expect_error(distill("m.safetensors --student mlp --out none/x.safetensors"), 1, "none");
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "x.safetensors"));
}

TEST_F(Distill, UnlabelledArraysNeedNoLabels) {
  std::string pixels(48 * 28 * 28, '\0');
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<char>(i * 7 % 251);
  write_file(*shop_ / "alone.npy", npy("|u1", "48, 28, 28", pixels));
  const std::string start = "m.safetensors --student mlp --out u.safetensors --unlabelled ";
  EXPECT_EQ(result_of(start + "alone.npy")["networks"].size(), 2U);
  write_file(*shop_ / "small.npy", npy("|u1", "48, 14, 14", pixels.substr(0, 48 * 14 * 14)));
  expect_error(distill(start + "small.npy"), 1, "expected samples of 1x28x28");
  write_file(*shop_ / "cut.npy", npy("|u1", "48, 28, 28", pixels.substr(0, 1000)));
  expect_error(distill(start + "cut.npy"), 3, "cut.npy");
  expect_error(shop_->ulp("train --data alone.npy --max-steps 1 --out x.safetensors"), 3,
               "expected two arrays");
}

TEST_F(Distill, ATeacherOfOtherClassesIsRefused) {
  std::string x, y;
  for (int i = 0; i < 60; ++i) {
    for (int c = 0; c < 3; ++c) {
      const auto value = static_cast<float>(i * 5 % (c + 2));
      x.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    const int64_t label = i % 3;
    y.append(reinterpret_cast<const char*>(&label), sizeof label);
  }
  write_file(*shop_ / "x.npy", npy("<f4", "60, 3", x));
  write_file(*shop_ / "y.npy", npy("<i8", "60,", y));
  ASSERT_EQ(
      shop_->ulp("train --model mlp --data x.npy,y.npy --batch 8 --max-steps 2 --out rows.safetensors").code,
      0);
  expect_error(distill("m.safetensors rows.safetensors --student mlp --out x.safetensors"), 1,
               "expected a teacher of 10 classes, got 3");
  expect_error(distill("m.safetensors --student rows.safetensors --out x.safetensors"), 3, "of 3");
  expect_error(distill("rows.safetensors --student mlp --out x.safetensors"), 1, "expected samples of 3x1x1");
}

TEST_F(Distill, NetworksOfOtherTokensAreRefused) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += i % 2 == 0 ? "good\ta fine day\n" : "bad\tan awful hour\n";
  write_file(*shop_ / "words.tsv", lines);
  for (const std::string name : {"few", "many"}) {
    const std::string learn = "tokenizer words.tsv --kind wordpiece --out " + name + ".json --vocab-size ";
    ASSERT_EQ(shop_->ulp(learn + (name == "few" ? "30" : "60")).code, 0);
    const Outcome trained =
        shop_->ulp("train --model bert --data words.tsv --length 8 --batch 8 --max-steps 1 " +
                   ("--threads 1 --tokenizer " + name + ".json --out of_" + name + ".st"));
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  const std::string rest =
      " --data words.tsv --batch 8 --max-steps 1 --threads 1 --no-latency --no-alone --out x.st ";
  expect_error(shop_->ulp("distill of_few.st of_many.st --student bert" + rest), 1, "of one tokenizer");
  expect_error(shop_->ulp("distill of_few.st --student of_many.st" + rest), 3, "another tokenizer");
  EXPECT_EQ(shop_->ulp("distill of_few.st --student of_few.st" + rest).code, 0);
}

/// Ends runs as soon as the checkpoint of each part is there; the last run gives the bytes of one that nobody ended.
TEST_F(Distill, ARunThatIsEndedContinuesToTheSameBytes) {
  const std::string run =
      "distill m.safetensors --student mlp --data data --batch 16 --max-steps 150 --lr 0.02 --threads 1 "
      "--no-latency "
      "--test 16 --loss 'kd:T=8>2,alpha=0.2' --loss mse:0.1@fc1 --loss crd:0.1,dim=8,negatives=20@fc1 "
      "--noise "
      "0.1 ";
  const Outcome whole = shop_->ulp(run + "--out whole.safetensors --save-recipe whole.json");
  ASSERT_EQ(whole.code, 0) << whole.err;
  const std::string parts =
      run +
      "--checkpoint d.ckpt --checkpoint-every 1 --resume --out parts.safetensors --save-recipe parts.json";
  int ended = 0;
  for (const auto& [file, signal] : {std::pair("d.ckpt.alone", SIGINT), std::pair("d.ckpt.alone", SIGKILL),
                                     std::pair("d.ckpt", SIGINT), std::pair("d.ckpt", SIGKILL)}) {
    const pid_t process = shop_->start(parts);
    for (int i = 0; i < 3000 && !std::filesystem::exists(*shop_ / file); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    ::kill(process, signal);
    const int code = Workshop::wait(process);
    EXPECT_TRUE(code == 0 || code == (signal == SIGINT ? 130 : 128 + signal)) << code;
    if (code != 0) ++ended;
    if (code != 0) {
      EXPECT_FALSE(std::filesystem::exists(*shop_ / "parts.safetensors"));
    }
  }
  EXPECT_GE(ended, 2);
  const Outcome last = shop_->ulp(parts);
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_TRUE(bytes("whole.safetensors") == bytes("parts.safetensors"));
  EXPECT_TRUE(bytes("whole.json") == bytes("parts.json"));
  // The checkpoint of another run is not taken.
  const std::string other = "--checkpoint d.ckpt --resume --no-alone --out other.safetensors";
  EXPECT_EQ(shop_->ulp(run + "--loss sp@fc1 " + other).code, 1);
  EXPECT_EQ(shop_->ulp(run + "--labels 0.5 " + other).code, 1);
  EXPECT_FALSE(std::filesystem::exists(*shop_ / "other.safetensors"));
}

/// Samples that the teacher was asked about before the end are not asked about again: in other batches it may round otherwise.
TEST_F(Distill, ACacheIsKeptWithEachCheckpoint) {
  const std::string run =
      "distill m.safetensors --student mlp --data data --batch 16 --max-steps 400 --lr 0.02 --threads 1 "
      "--no-latency --no-alone --test 16 --no-augment ";
  ASSERT_EQ(shop_->ulp(run + "--teacher-cache whole --out whole.safetensors").code, 0);
  const std::string parts = run +
                            "--checkpoint c.ckpt --checkpoint-every 3 --resume --teacher-cache parts "
                            "--out parts.safetensors";
  std::filesystem::remove(*shop_ / "parts");
  const pid_t process = shop_->start(parts);
  for (int i = 0; i < 3000 && !std::filesystem::exists(*shop_ / "c.ckpt"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ::kill(process, SIGKILL);
  Workshop::wait(process);
  EXPECT_TRUE(std::filesystem::exists(*shop_ / "parts"));
  ASSERT_EQ(shop_->ulp(parts).code, 0);
  EXPECT_TRUE(bytes("whole.safetensors") == bytes("parts.safetensors"));
  EXPECT_TRUE(bytes("whole") == bytes("parts"));
}

TEST_F(Distill, PeersAndExitsContinueToTheSameBytes) {
  for (const char* scheme : {"--student mlp --peer lenet5", "--student lenet5 --exits conv1,conv2"}) {
    const std::string run = quick(scheme);
    ASSERT_EQ(shop_->ulp(run + "--out whole.safetensors").code, 0);
    const std::string parts = run + "--checkpoint p.ckpt --checkpoint-every 4 --out parts.safetensors";
    std::filesystem::remove(*shop_ / "p.ckpt");
    ASSERT_EQ(shop_->ulp(parts).code, 0);
    EXPECT_TRUE(bytes("whole.safetensors") == bytes("parts.safetensors")) << scheme;
    std::filesystem::remove(*shop_ / "parts.safetensors");
    ASSERT_EQ(shop_->ulp(parts + " --resume").code, 0);
    EXPECT_TRUE(bytes("whole.safetensors") == bytes("parts.safetensors")) << scheme;
  }
}

}  // namespace
