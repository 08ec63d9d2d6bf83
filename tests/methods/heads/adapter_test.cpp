// Adapter files: our layout, the published ones, and what is wrong with bad ones.
#include "methods/heads/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "engine/base/error.h"
#include "engine/formats/safetensors_writer.h"
#include "methods/registration.h"
#include "tests/methods/support/adapters.h"
#include "tests/methods/support/corpora.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests::adapter_test {
namespace {

using testing::HasSubstr;

class AdapterFiles : public testing::Test {
 protected:
  std::string message(const std::string& spec) {
    try {
      build_method(spec, model_);
    } catch (const base::Error& e) {
      return e.what();
    }
    return "accepted";
  }
  std::string written(const AdapterFile& file, const std::string& name = "a.safetensors") {
    file.write(folder_.file(name));
    return folder_.file(name);
  }
  AdapterFile file(const std::string& kind) { return random_adapter(kind, *model_, 3); }
  // What a run stores with an arm that has this adapter of EAGLE.
  std::map<std::string, std::string> stored(const AdapterFile& file) {
    const methods::MethodSpec spec = methods::parse_method("eagle:adapter=" + written(file));
    methods::MethodBuildContext context;
    context.target = model_;
    return spec.info->files(spec.params, context);
  }

  TempFolder folder_;
  std::shared_ptr<const engine::Model> model_ = small_model(1);
};

// What each method says of a broken file: the tensor or field, and what to do.
TEST_F(AdapterFiles, BadFilesAreNamed) {
  const auto with = [&](const std::string& kind, const std::string& spec, auto change) {
    AdapterFile f = file(kind);
    change(f);
    return message(spec + "adapter=" + written(f));
  };
  EXPECT_THAT(with("eagle", "eagle:", [](AdapterFile& f) { f.tensors.erase("fc.weight"); }),
              HasSubstr("tensor fc.weight: is missing"));
  EXPECT_THAT(with("eagle", "eagle:", [](AdapterFile& f) { f.matrix("fc.weight", 32, 32); }),
              HasSubstr("tensor fc.weight: is [32, 32], expected [32, 64]"));
  EXPECT_THAT(
      with("eagle", "eagle:", [](AdapterFile& f) { f.matrix("layers.1.q.weight", 32, 32); }),
      HasSubstr("tensor layers.1.q.weight: is not part of eagle"));
  EXPECT_THAT(
      with("eagle", "eagle:", [](AdapterFile& f) { f.tensors["fc.bias"].values[3] = INFINITY; }),
      HasSubstr("tensor fc.bias: row 0 is not finite"));
  EXPECT_THAT(with("eagle", "eagle:", [](AdapterFile& f) { f.metadata.erase("config"); }),
              HasSubstr("config.n_heads: is missing"));
  EXPECT_THAT(with("eagle", "eagle:", [](AdapterFile& f) { f.metadata["config"] = "{"; }),
              HasSubstr("__metadata__.config"));
  EXPECT_THAT(with("eagle", "eagle:", [](AdapterFile& f) { f.metadata["version"] = "7"; }),
              HasSubstr("is 7; this program reads version 1"));
  EXPECT_THAT(with("eagle", "eagle:",
                   [](AdapterFile& f) {
                     f.ids["draft_vocab"] = {1, 99};
                   }),
              HasSubstr("entry 1 is id 99"));
  EXPECT_THAT(with("eagle", "eagle:",
                   [](AdapterFile& f) {
                     f.ids["draft_vocab"] = {5, 2};
                   }),
              HasSubstr("must ascend"));
  EXPECT_THAT(with("eagle", "medusa:", [](AdapterFile&) {}), HasSubstr("holds weights for eagle"));
  EXPECT_THAT(with("eagle", "eagle:", [](AdapterFile& f) { f.metadata["target_hash"] = "abc"; }),
              HasSubstr("trained for another model"));
  EXPECT_THAT(with("eagle", "eagle:any_target=true,",
                   [](AdapterFile& f) { f.metadata["target_hash"] = "abc"; }),
              "accepted");
  EXPECT_THAT(with("medusa", "medusa:tree=chain:5,", [](AdapterFile&) {}),
              HasSubstr("has 5 levels, these weights draft 4"));
  EXPECT_THAT(
      with("medusa", "medusa:",
           [](AdapterFile& f) { f.metadata["tree"] = R"({"paths": ["0", "1"], "gain": [0.5]})"; }),
      HasSubstr("2 paths and 1 gains"));
  EXPECT_THAT(
      with("medusa", "medusa:",
           [](AdapterFile& f) { f.metadata["tree"] = R"({"paths": ["00"], "gain": [0.5]})"; }),
      HasSubstr("path 00 without 0"));
  EXPECT_THAT(with("falcon", "falcon:k=3,", [](AdapterFile&) {}),
              HasSubstr("k=3, but these weights were trained for k=2"));
  EXPECT_THAT(with("falcon", "falcon:tree=dynamic,choices=64,levels=64,", [](AdapterFile&) {}),
              HasSubstr("need 1984 blocks of 2 rows"));
  EXPECT_THAT(with("falcon", "falcon:tree=dynamic,draft=drawn,", [](AdapterFile&) {}),
              HasSubstr("tree=dynamic drafts the likeliest tokens"));
  EXPECT_THAT(with("falcon", "falcon:tree=dynamic,levels=1,total=5,", [](AdapterFile&) {}),
              "accepted");
  EXPECT_THAT(with("falcon", "falcon:lstm=recurrent,", [](AdapterFile&) {}),
              HasSubstr("lstm=recurrent does not fit"));
  EXPECT_THAT(with("falcon3", "falcon:lstm=recurrent,", [](AdapterFile&) {}),
              HasSubstr("no forget gate"));
  EXPECT_THAT(with("eagle3", "eagle3:",
                   [](AdapterFile& f) {
                     f.metadata["config"].replace(f.metadata["config"].find("[0, 1, 2]"), 9,
                                                  "[0, 1, 9]");
                   }),
              HasSubstr("config.residual_layers: has 9"));
}

// What training states of itself goes into the arm; an adapter that states nothing adds nothing.
TEST_F(AdapterFiles, TheBudgetOfTheTrainingIsTold) {
  const std::string stated =
      R"({"text": "3f", "updates": 225, "tokens": 40000, "batch": 4, "recipe": "small",
          "optimiser": "AdamW lr 0.001"})";
  AdapterFile f = file("eagle");
  EXPECT_THAT(stored(f), testing::ElementsAre(testing::Key("adapter")));
  f.metadata["training"] = R"({"seed": 1})";
  EXPECT_FALSE(stored(f).contains("adapter_budget"));
  f.metadata["training"] = R"({"seed": 1, "budget": )" + stated + "}";
  const nlohmann::json budget = nlohmann::json::parse(stored(f).at("adapter_budget"));
  EXPECT_EQ(budget["updates"], 225);
  EXPECT_EQ(budget["text"], "3f");
  EXPECT_EQ(budget["target"], model_->hash());
  EXPECT_EQ(budget.size(), 7u);
  const auto with = [&](const std::string& from, const std::string& to) {
    AdapterFile broken = file("eagle");
    std::string text = stated;
    text.replace(text.find(from), from.size(), to);
    broken.metadata["training"] = R"({"budget": )" + text + "}";
    return message("eagle:adapter=" + written(broken));
  };
  EXPECT_THAT(with("\"updates\": 225, ", ""), HasSubstr("training.budget.updates' is missing"));
  EXPECT_THAT(with("225", "\"many\""), HasSubstr("training.budget.updates"));
  EXPECT_THAT(with("225", "0"), HasSubstr("is 0, expected 1 or more"));
  EXPECT_THAT(with("\"3f\"", "\"\""), HasSubstr("training.budget.text: is empty"));
  f.metadata["training"] = R"({"budget": 3})";
  EXPECT_THAT(message("eagle:adapter=" + written(f)), HasSubstr("must be an object"));
}

// Test prompts in the text of the training go into the arm. Where there were none, or where nobody
// looked, nothing is added.
TEST_F(AdapterFiles, TestPromptsInTheTrainingAreTold) {
  AdapterFile f = file("eagle");
  const auto overlap = [&](const std::string& stated) {
    f.metadata["training"] = R"({"seed": 1, "overlap": )" + stated + "}";
    const std::map<std::string, std::string> files = stored(f);
    const auto found = files.find("adapter_overlap");
    return found == files.end() ? std::string("nothing") : found->second;
  };
  EXPECT_EQ(overlap(R"({"mbpp": 1, "gsm8k": 3, "xsum": 0})"), R"({"gsm8k":3,"mbpp":1})");
  EXPECT_EQ(overlap(R"({"mbpp": 0})"), "nothing");
  EXPECT_EQ(overlap("{}"), "nothing");
  EXPECT_EQ(overlap("null"), "nothing");
  f.metadata["training"] = R"({"seed": 1})";
  EXPECT_THAT(stored(f), testing::ElementsAre(testing::Key("adapter")));
  const auto refused = [&](const std::string& stated) {
    f.metadata["training"] = R"({"overlap": )" + stated + "}";
    return message("eagle:adapter=" + written(f));
  };
  EXPECT_THAT(refused(R"({"gsm8k": -1})"),
              HasSubstr("training.overlap.gsm8k: is -1, expected 0 or more"));
  EXPECT_THAT(refused(R"({"gsm8k": "many"})"), HasSubstr("training.overlap.gsm8k"));
  EXPECT_THAT(refused("3"), HasSubstr("must be an object"));
}

TEST_F(AdapterFiles, TruncatedPickledAndMissingOnesAreNamed) {
  const std::string path = written(file("eagle"));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THAT(message("eagle:adapter=" + path), HasSubstr("a.safetensors"));
  EXPECT_THAT(message("eagle:adapter=" + folder_.file("none.safetensors")),
              HasSubstr("there is no adapter"));
  EXPECT_THAT(message("medusa:adapter=" + folder_.write("medusa_lm_head.pt", "PK")),
              HasSubstr("scripts/convert-adapter"));
  std::filesystem::create_directory(folder_.file("f"));
  std::ofstream(folder_.file("f/pytorch_model.bin")) << "PK";
  EXPECT_THAT(message("eagle:adapter=" + folder_.file("f")), HasSubstr("scripts/convert-adapter"));
  EXPECT_THAT(message("medusa"), HasSubstr("scripts/train medusa"));
}

TEST_F(AdapterFiles, StoredTreesCanBeCut) {
  AdapterFile f = file("medusa");
  f.metadata["tree"] = R"({"paths": ["0", "1", "00"], "gain": [0.5, 0.3, 0.2]})";
  const std::string path = written(f, "tree.safetensors");
  const auto steps = [&](const std::string& tree) {
    const auto method = build_method("medusa:tree=" + tree + ",adapter=" + path, model_);
    const auto session = make_session(model_);
    std::vector<int> seen;
    for (const auto& step : run(*method, *session, {{3, 1, 4, 1, 5}}).steps) {
      seen.push_back(step.rows);
      seen.push_back(step.accepted);
    }
    return seen;
  };
  EXPECT_EQ(steps("stored:1"), steps("0"));
  EXPECT_EQ(steps("stored:3"), steps("0+1+00"));
  EXPECT_NE(steps("stored:1"), steps("stored:3"));
  for (const char* n : {"0", "4", "x", "2x", ""})
    EXPECT_THAT(message(fmt::format("medusa:tree=stored:{},adapter={}", n, path)),
                HasSubstr("the stored tree has 3 nodes"));
  EXPECT_THAT(
      message("medusa:tree=stored:2,adapter=" + written(file("medusa"), "none.safetensors")),
      HasSubstr("no tree is stored in"));
}

// Acceptance by rank: 0.5 and 0.3, then 0.37 of 0.8.
TEST_F(AdapterFiles, SequoiasTreeFollowsFromTheStoredOne) {
  AdapterFile f = file("medusa");
  f.metadata["tree"] = R"({"paths": ["0", "1", "10", "00"], "gain": [0.5, 0.3, 0.27, 0.1]})";
  const std::string path = written(f, "tree.safetensors");
  const auto steps = [&](const std::string& tree) {
    const auto method = build_method("medusa:tree=" + tree + ",adapter=" + path, model_);
    EXPECT_EQ(method->largest_step().rows, 4) << tree;
    const auto session = make_session(model_);
    std::vector<int> accepted;
    for (const auto& step : run(*method, *session, {{3, 1, 4, 1, 5}}).steps)
      accepted.push_back(step.accepted);
    return accepted;
  };
  EXPECT_EQ(steps("sequoia:3"), steps("0+1+00"));
  for (const char* n : {"0", "1024", "x", "2x", ""})
    EXPECT_THAT(message(fmt::format("medusa:tree=sequoia:{},adapter={}", n, path)),
                HasSubstr("give sequoia:1 to sequoia:1023"));
  EXPECT_THAT(
      message("medusa:tree=sequoia:2,adapter=" + written(file("medusa"), "none.safetensors")),
      HasSubstr("no tree is stored in"));
}

// Weights of the published layouts draft what the same numbers draft in ours.
TEST_F(AdapterFiles, PublishedLayoutsLoad) {
  const auto expect_same = [&](const AdapterFile& ours, const AdapterFile& theirs,
                               const std::string& config, const std::string& spec,
                               const std::string& weights) {
    const std::string own = written(ours, "own.safetensors");
    const std::string published = folder_.file(spec.substr(0, spec.find(':')));
    std::filesystem::create_directory(published);
    theirs.write(published + "/" + weights);
    std::ofstream(published + "/config.json") << config;
    const auto a = build_method(spec + "adapter=" + own, model_);
    const auto b = build_method(spec + "adapter=" + published, model_);
    const auto session = make_session(model_);
    int accepted = 0;
    for (const Tokens& prompt : {Tokens{3, 1, 4, 1, 5}, Tokens{9, 2, 6}}) {
      const results::TurnRecord x = run(*a, *session, {prompt}), y = run(*b, *session, {prompt});
      ASSERT_EQ(x.steps.size(), y.steps.size()) << spec;
      for (size_t i = 0; i < x.steps.size(); ++i) {
        EXPECT_EQ(x.steps[i].accepted, y.steps[i].accepted);
        EXPECT_EQ(x.steps[i].rows, y.steps[i].rows);
        accepted += x.steps[i].accepted;
      }
    }
    EXPECT_GT(accepted, 0) << spec;
  };
  const auto renamed = [](const AdapterFile& from, std::map<std::string, std::string> names) {
    AdapterFile to;
    for (const auto& [name, tensor] : from.tensors) to.tensors[names.at(name)] = tensor;
    return to;
  };
  const int vocab = model_->config().vocab_size, d = model_->config().d_model;
  const auto layer = [](std::map<std::string, std::string>& names, const std::string& at,
                        const std::string& theirs) {
    for (const char* p : {"q", "k", "v", "o"})
      names[at + p + ".weight"] = fmt::format("{}self_attn.{}_proj.weight", theirs, p);
    for (const char* p : {"gate", "up", "down"})
      names[at + p + ".weight"] = fmt::format("{}mlp.{}_proj.weight", theirs, p);
    names[at + "ffn_norm"] = theirs + "post_attention_layernorm.weight";
  };
  const std::string shape =
      R"("num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
         "intermediate_size": 48, "rms_norm_eps": 1e-5, "num_hidden_layers": 1, "torch_dtype": "x")";

  {  // Medusa: a config that lies about the number of heads, as the published v1.3 ones do
    AdapterFile own = file("medusa"), theirs;
    own.ids.clear();
    std::vector<float> head(static_cast<size_t>(vocab * d));
    for (int o = 0; o < vocab; ++o)
      model_->head().copy_row(
          o, std::span(head).subspan(static_cast<size_t>(o * d), static_cast<size_t>(d)));
    for (int k = 0; k < 4; ++k) {
      for (int j = 0; j < 2; ++j)
        for (const char* part : {"weight", "bias"})
          theirs.tensors[fmt::format("{}.{}.linear.{}", k, j, part)] =
              own.tensors.at(fmt::format("heads.{}.{}.{}", k, j, part));
      theirs.matrix(fmt::format("{}.2.weight", k), vocab, d, head);
    }
    expect_same(own, theirs, R"({"medusa_num_heads": 2, "medusa_num_layers": 2})",
                "medusa:tree=0+1+00+01+000+0000,", "medusa_lm_head.safetensors");
  }
  {  // EAGLE-1
    AdapterFile own = file("eagle");
    own.ids.clear();
    std::map<std::string, std::string> names = {{"fc.weight", "fc.weight"}, {"fc.bias", "fc.bias"}};
    layer(names, "layers.0.", "layers.0.");
    AdapterFile theirs = renamed(own, names);
    theirs.matrix("embed_tokens.weight", vocab, d);  // a copy nobody reads
    expect_same(own, theirs, "{" + shape + "}", "eagle:", "model.safetensors");
  }
  {  // EAGLE-3: d2t holds differences
    AdapterFile own = file("eagle3");
    own.metadata["config"].replace(own.metadata["config"].find("[0, 1, 2]"), 9, "[2, 1, 0]");
    own.matrix("lm_head.weight", vocab - 1, d);
    base::Rng rng(4);
    for (float& v : own.tensors["lm_head.weight"].values)
      v = static_cast<float>(rng.uniform() - 0.5);
    std::map<std::string, std::string> names = {
        {"fc.weight", "fc.weight"},
        {"norm", "norm.weight"},
        {"lm_head.weight", "lm_head.weight"},
        {"layers.0.attn_norm", "midlayer.hidden_norm.weight"},
        {"layers.0.embed_norm", "midlayer.input_layernorm.weight"}};
    layer(names, "layers.0.", "midlayer.");
    AdapterFile theirs = renamed(own, names);
    std::vector<int32_t>& d2t = theirs.ids["d2t"];
    for (size_t i = 0; i < own.ids["draft_vocab"].size(); ++i)
      d2t.push_back(own.ids["draft_vocab"][i] - static_cast<int32_t>(i));
    // A two-layer target has no three places of its own: 2, L/2, L-3 do not exist.
    expect_same(own, theirs, "{" + shape + R"(, "residual_layers": [2, 1, 0]})",
                "eagle3:k=3,levels=3,total=8,", "model.safetensors");
  }
  {  // Falcon: all four gates, two biases, one of them to be added
    AdapterFile own = file("falcon_recurrent");
    own.ids.clear();
    std::map<std::string, std::string> names;
    for (const char* l : {"0", "1"}) {
      names[fmt::format("lstm.{}.weight", l)] = fmt::format("lstm.weight_ih_l{}", l);
      names[fmt::format("lstm.{}.hidden.weight", l)] = fmt::format("lstm.weight_hh_l{}", l);
      names[fmt::format("lstm.{}.bias", l)] = fmt::format("lstm.bias_ih_l{}", l);
    }
    layer(names, "layers.0.", "layers.0.");
    AdapterFile theirs = renamed(own, names);
    for (const char* l : {"0", "1"})
      theirs.vector(fmt::format("lstm.bias_hh_l{}", l),
                    std::vector<float>(static_cast<size_t>(4 * d)));
    own.metadata["config"].replace(own.metadata["config"].find("\"scale\": 2.0"), 12,
                                   "\"scale\": 1.0");
    expect_same(own, theirs, "{" + shape + R"(, "k_mask": 2})", "falcon:lstm=recurrent,",
                "model.safetensors");
  }
}

// A name finds the file that was trained for this very target, wherever it lies under the folder.
TEST_F(AdapterFiles, NamesFindTheOneForThisTarget) {
  std::filesystem::create_directory(folder_.file("m"));
  ASSERT_EQ(setenv("EVALRUN_ADAPTERS", folder_.file("m").c_str(), 1), 0);
  AdapterFile other = file("medusa");
  other.metadata["target_hash"] = "0123456789";
  other.metadata["target_name"] = "someone else";
  other.write(folder_.file("m/medusa.safetensors"));
  EXPECT_THAT(message("medusa"), HasSubstr("someone else"));
  EXPECT_THAT(message("medusa:adapter=wide"), HasSubstr("no weights 'wide'"));
  // A model with a hash, as those loaded from files have one.
  engine::LoadOptions options;
  options.need_tokenizer = false;
  const auto tiny =
      engine::load_model(std::string(EVALRUN_TEST_DATA) + "/models/tiny-llama", options);
  ASSERT_FALSE(tiny->hash().empty());
  random_adapter("medusa", *tiny, 1).write(folder_.file("m/wide.safetensors"));
  const auto found = methods::find_adapter("medusa", "wide", *tiny);
  EXPECT_EQ(found->path(), folder_.file("m/wide.safetensors"));
  EXPECT_THROW(methods::find_adapter("eagle", "wide", *tiny), base::Error);
  unsetenv("EVALRUN_ADAPTERS");
}

}  // namespace
}  // namespace evalrun::tests::adapter_test
