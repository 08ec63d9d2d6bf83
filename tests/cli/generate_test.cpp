// evalrun generate, against what transformers generates with the tiny model and against itself; and
// evalrun capture.
#include <algorithm>
#include <cstring>

#include "engine/formats/safetensors.h"
#include "engine/model/model.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

class Generate : public CommandTest {
 protected:
  ProgramResult generate(const std::vector<std::string>& more) { return command("generate", more); }
  ProgramResult capture(const std::vector<std::string>& more) { return command("capture", more); }
  ProgramResult command(const char* name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {name, "-m", tiny_model(), "--in", "in.jsonl"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

using Capture = Generate;

TEST_F(Generate, GreedyTokensOfTransformers) {
  const json expected =
      json::parse(base::read_file(EVALRUN_TEST_DATA "/models/tiny-llama/expected.json"));
  std::string input;
  for (size_t i = 0; i < expected["input_ids"].size(); ++i)
    input += json({{"id", i}, {"tokens", expected["input_ids"][i]}}).dump() + "\n";
  folder_.write("in.jsonl", input);
  const ProgramResult result = generate(
      {"-n", "32", "--methods", "ar,pld:k=3,sps:draft=layers:1", "--ignore-eos", "--dtype", "f32"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = parse_lines(result.out);
  ASSERT_EQ(lines.size(), 3 * expected["input_ids"].size());
  const std::vector<std::string> methods = {"ar", "pld:k=3", "sps:draft=layers:1"};
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["id"], i / 3);
    EXPECT_EQ(lines[i]["method"], methods[i % 3]);
    EXPECT_EQ(lines[i]["prompt_tokens"], expected["input_ids"][i / 3]);
    EXPECT_EQ(lines[i]["tokens"], expected["greedy_32"][i / 3]) << methods[i % 3];
    EXPECT_FALSE(lines[i].contains("top"));
  }
}

TEST_F(Generate, IdsComeBackAsGiven) {
  folder_.write(
      "in.jsonl",
      "{\"id\": \"a\", \"prompt\": \"x\"}\n{\"id\": {\"k\": [1, null]}, \"prompt\": \"x\"}\n"
      "{\"id\": 1.5, \"prompt\": \"x\"}\n{\"prompt\": \"x\"}\n");
  const auto lines = parse_lines(generate({"-n", "1"}).out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["id"], "a");
  EXPECT_EQ(lines[1]["id"], json({{"k", {1, nullptr}}}));
  EXPECT_EQ(lines[2]["id"], 1.5);
  EXPECT_TRUE(lines[3]["id"].is_null());
}

TEST_F(Generate, MessagesGoThroughTheTemplate) {
  folder_.write("in.jsonl",
                "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n"
                "{\"prompt\": \"<|im_start|>user\\nhi<|im_end|>\\n<|im_start|>assistant\\n\"}\n");
  const auto lines = parse_lines(generate({"-n", "4"}).out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["prompt_tokens"], lines[1]["prompt_tokens"]);
  EXPECT_EQ(lines[0]["tokens"], lines[1]["tokens"]);
}

// The logits of a token are those of its position, whatever method emitted it and in whatever tree.
TEST_F(Generate, TopLogitsDoNotDependOnTheMethod) {
  write_prompts(folder_, 2);
  folder_.write("in.jsonl", folder_.read("prompts.jsonl"));
  const ProgramResult result =
      generate({"-n", "40", "--methods", "ar,pld", "--top-logits", "4", "--ignore-eos"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = parse_lines(result.out);
  ASSERT_EQ(lines.size(), 4u);
  for (size_t i = 0; i < lines.size(); i += 2) EXPECT_EQ(lines[i]["top"], lines[i + 1]["top"]);
  for (const json& line : lines) {
    ASSERT_EQ(line["top"].size(), 40u);
    for (size_t i = 0; i < 40; ++i) {
      const json& top = line["top"][i];
      ASSERT_EQ(top.size(), 4u);
      EXPECT_EQ(top[0][0], line["tokens"][i]);
      for (size_t k = 1; k < 4; ++k) EXPECT_GE(top[k - 1][1], top[k][1]);
    }
  }
}

TEST_F(Generate, SamplesFollowTheSeed) {
  folder_.write("in.jsonl", "{\"prompt\": \"the\"}\n{\"prompt\": \"the\"}\n");
  // Hot enough that two draws of 24 tokens never agree by chance: the likeliest token has a few
  // percent.
  const std::vector<std::string> sampling = {"-n", "24", "--temperature", "5", "--ignore-eos"};
  const auto with_seed = [&](const char* seed) {
    std::vector<std::string> arguments = sampling;
    arguments.insert(arguments.end(), {"--seed", seed});
    return generate(arguments).out;
  };
  const std::string first = with_seed("1");
  EXPECT_EQ(first, with_seed("1"));
  EXPECT_NE(first, with_seed("2"));
  std::vector<std::string> noise = sampling;
  noise.insert(noise.end(), {"--seed", "1", "--sampler", "gumbel"});
  const ProgramResult by_noise = generate(noise);
  ASSERT_EQ(by_noise.exit_code, 0) << by_noise.err;
  EXPECT_NE(by_noise.out, first) << "another sampler draws otherwise";
  const auto lines = parse_lines(first);
  EXPECT_NE(lines[0]["tokens"], lines[1]["tokens"]) << "lines are independent draws";
}

// The likeliest of 512 tokens has more than a thousandth, so it is alone in the nucleus, however
// hot.
TEST_F(Generate, TheLeastNucleusIsGreedy) {
  folder_.write("in.jsonl", "{\"prompt\": \"the\"}\n");
  const auto tokens = [&](const std::vector<std::string>& sampling) {
    std::vector<std::string> arguments = {"-n", "24", "--ignore-eos"};
    arguments.insert(arguments.end(), sampling.begin(), sampling.end());
    return parse_lines(generate(arguments).out).at(0)["tokens"];
  };
  const json greedy = tokens({});
  EXPECT_EQ(tokens({"--temperature", "5", "--top-p", "0.001"}), greedy);
  EXPECT_EQ(tokens({"--temperature", "5", "--top-k", "1"}), greedy);
  EXPECT_NE(tokens({"--temperature", "5", "--top-p", "1"}), greedy);
}

TEST_F(Generate, BadInput) {
  const auto refuse = [&](const std::string& line, int code, const std::string& named,
                          const std::vector<std::string>& more = {}) {
    SCOPED_TRACE(named);
    folder_.write("in.jsonl", line + "\n");
    expect_refused(generate(more), code, named);
  };
  refuse("{\"id\": 1}", 7, "'prompt', 'messages' and 'tokens'");
  refuse("{\"prompt\": \"a\", \"tokens\": [1]}", 7, "in.jsonl: line 1");
  refuse("{\"tokens\": [512]}", 7, "tokens[0]");
  refuse("{\"tokens\": []}", 7, "no tokens");
  refuse("{\"messages\": [{\"role\": \"user\"}]}", 7, "messages[0]");
  refuse("{\"messages\": []}", 7, "messages");
  refuse("{\"prompt\": \"a\"}", 2, "pld", {"--methods", "pdl"});
  refuse("{\"prompt\": \"a\"}", 2, "kk", {"--methods", "pld:kk=1"});
  refuse("{\"prompt\": \"a\"}", 2, "another vocabulary",
         {"--methods", "sps", "--draft", other_vocabulary()});
  refuse("{\"prompt\": \"a\"}", 2, "avx1024", {"--isa", "avx1024"});
  refuse("{\"prompt\": \"a\"}", 2, "--sampler gumbel with temperature 0", {"--sampler", "gumbel"});
  std::string ids = "1";
  for (int i = 0; i < 4096; ++i) ids += ",1";
  refuse("{\"tokens\": [" + ids + "]}", 2, "context of 4096");
}

// Many prompts at once give what one at a time gives; runners/capture_test.cpp looks at the states.
TEST_F(Capture, EqualsOneByOne) {
  write_prompts(folder_, 9);
  folder_.write("in.jsonl", folder_.read("prompts.jsonl") + "\n\n{\"tokens\": [1, 5, 9]}\n");
  const auto alone = parse_lines(generate({"-n", "20"}).out);
  const std::vector<std::string> save = {"-n", "20", "--out", "d", "--jobs", "4"};
  const ProgramResult result = capture(save);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto summary = parse_lines(result.out);
  ASSERT_EQ(summary.size(), 1u);
  EXPECT_EQ(summary[0]["sequences"], alone.size());
  const engine::SafeTensors part(folder_.file("d/part-00000.safetensors"));
  const auto ints = [&](const char* name) {
    const auto bytes = part.tensors().at(name).bytes;
    std::vector<int32_t> values(bytes.size() / sizeof(int32_t));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  const auto tokens = ints("tokens"), start = ints("start"), line = ints("line");  // halves of I64
  size_t last = 0;
  for (size_t s = 0; 2 * s < line.size(); ++s) {
    const auto l = static_cast<size_t>(line[2 * s]);
    const json& expected = alone.at(std::min(l, alone.size() - 1));  // the last one is after two
    std::vector<int32_t> both = expected["prompt_tokens"];           // empty lines
    for (const int32_t t : expected["tokens"]) both.push_back(t);
    EXPECT_EQ(std::vector(tokens.begin() + start[2 * s], tokens.begin() + start[2 * s + 2]), both);
    last = std::max(last, l);
  }
  EXPECT_EQ(last, alone.size() + 1);  // two empty lines before it, and lines count from 0
  EXPECT_EQ(json::parse(folder_.read("d/capture.json"))["n_lines"], alone.size() + 2);

  const ProgramResult again = capture(save);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(parse_lines(again.out)[0]["sequences_now"], 0);
  std::vector<std::string> longer = save;
  longer[1] = "21";
  expect_refused(capture(longer), 2, "max_new is 20 there and 21 now");
}

// answers=dataset: tokens are the prompt's, the answer's and the end of a turn.
TEST_F(Capture, OfGivenAnswers) {
  const json messages = {{{"role", "user"}, {"content", "hi"}}};
  const std::string answer = "once there was a fox";
  folder_.write("in.jsonl", json({{"messages", messages}, {"answer", " " + answer + "\n"}}).dump());
  const auto prompt = parse_lines(generate({"-n", "1"}).out).at(0)["prompt_tokens"];
  const auto save = [&](const std::string& n) {
    return capture({"-n", n, "--out", "d" + n, "--answers", "dataset"});
  };
  const auto read = [&](const std::string& part, const char* name) {
    const engine::SafeTensors file(folder_.file(part + "/part-00000.safetensors"));
    const auto bytes = file.tensors().at(name).bytes;
    return std::vector<uint8_t>(bytes.begin(), bytes.end());
  };
  const auto tokens = [&](const std::string& part) {
    const auto bytes = read(part, "tokens");
    std::vector<int32_t> ids(bytes.size() / sizeof(int32_t));
    std::memcpy(ids.data(), bytes.data(), bytes.size());
    return ids;
  };
  ASSERT_EQ(save("200").exit_code, 0);
  ASSERT_EQ(save("5").exit_code, 0);
  const auto whole = tokens("d200"), cut = tokens("d5");
  ASSERT_GT(whole.size(), prompt.size() + 6);
  EXPECT_EQ(json(std::vector(whole.begin(), whole.begin() + static_cast<long>(prompt.size()))),
            prompt);
  const auto model = engine::load_model(tiny_model());
  const std::vector<int32_t> said(whole.begin() + static_cast<long>(prompt.size()),
                                  whole.end() - 1);
  EXPECT_EQ(model->tokenizer()->decode(said), answer);
  const auto& stops = model->tokenizer()->stop_ids();
  EXPECT_NE(std::find(stops.begin(), stops.end(), whole.back()), stops.end());
  EXPECT_EQ(std::find_first_of(said.begin(), said.end(), stops.begin(), stops.end()), said.end());
  EXPECT_EQ(read("d200", "ended"), std::vector<uint8_t>{1});
  EXPECT_EQ(cut, std::vector(whole.begin(), whole.begin() + static_cast<long>(prompt.size()) + 5));
  EXPECT_EQ(read("d5", "ended"), std::vector<uint8_t>{0});
  EXPECT_EQ(json::parse(folder_.read("d5/capture.json"))["answers"], "dataset");
  // Vicuna's has a space before an answer, and this vocabulary no </s> after it; Qwen3's puts
  // thoughts there that nobody had.
  expect_refused(
      capture({"-n", "200", "--out", "v", "--answers", "dataset", "--chat-template", "vicuna"}), 7,
      "none of its stop tokens");
  expect_refused(
      capture({"-n", "9", "--out", "q", "--answers", "dataset", "--chat-template", "qwen3"}), 7,
      "does not put an answer");

  const auto refuse = [&](const json& line, const std::string& named) {
    folder_.write("in.jsonl", line.dump() + "\n");
    expect_refused(capture({"-n", "4", "--out", "e", "--answers", "dataset"}), 7, named);
  };
  refuse({{"messages", messages}}, "answer");
  refuse({{"messages", messages}, {"answer", 7}}, "answer");
  refuse({{"messages", messages}, {"answer", "  "}}, "'answer' is empty");
  refuse({{"prompt", "hi"}, {"answer", "x"}}, "'answer' needs 'messages'");
  refuse({{"messages", messages}, {"answer", "x <|im_end|> y"}}, "special token");
}

// Every turn of the user is answered: after the model's own answers, or by the data set's.
TEST_F(Capture, DialoguesTurnByTurn) {
  const auto says = [](const char* role, const std::string& text) {
    return json{{"role", role}, {"content", text}};
  };
  const json chat = {says("system", "be short"), says("user", "hi"), says("assistant", "a fox"),
                     says("user", "more"), says("assistant", "a hen")};
  folder_.write("in.jsonl", json({{"messages", chat}}).dump() + "\n" +
                                json({{"messages", json::array({says("user", "hi")})}}).dump() +
                                "\n");
  const auto model = engine::load_model(tiny_model());
  // (token ids up to an answer, the answer as text without what ends it) of line 0.
  const auto answers = [&](const std::string& folder) {
    const engine::SafeTensors file(folder_.file(folder + "/part-00000.safetensors"));
    const auto ints = [&]<typename T>(const char* name, T) {
      const auto bytes = file.tensors().at(name).bytes;
      std::vector<T> numbers(bytes.size() / sizeof(T));
      std::memcpy(numbers.data(), bytes.data(), bytes.size());
      return numbers;
    };
    const auto tokens = ints("tokens", int32_t{}), first = ints("answer_first", int32_t{}),
               last = ints("answer_last", int32_t{});
    const auto start = ints("start", int64_t{}), of = ints("answers", int64_t{}),
               line = ints("line", int64_t{});
    std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>> turns;
    for (size_t s = 0; s < line.size(); ++s)
      for (int64_t a = of[s]; line[s] == 0 && a < of[s + 1]; ++a) {
        const auto begin = tokens.begin() + start[s];
        turns.push_back(
            {{begin, begin + first[static_cast<size_t>(a)]},
             {begin + first[static_cast<size_t>(a)], begin + last[static_cast<size_t>(a)]}});
      }
    return turns;
  };
  const auto rendered = [&](const json& messages) {
    folder_.write("one.jsonl", json({{"messages", messages}}).dump());
    const ProgramResult result =
        run({"generate", "-m", tiny_model(), "--in", "one.jsonl", "-n", "6"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_lines(result.out).at(0);
  };

  const ProgramResult given = capture({"-n", "200", "--out", "given", "--answers", "dataset"});
  EXPECT_EQ(given.exit_code, 7) << "line 2 has no answer";
  EXPECT_THAT(given.err, ::testing::HasSubstr("in.jsonl: line 2"));
  folder_.write("in.jsonl", json({{"messages", chat}}).dump() + "\n");
  ASSERT_EQ(capture({"-n", "200", "--out", "given", "--answers", "dataset"}).exit_code, 0);
  const auto theirs = answers("given");
  ASSERT_EQ(theirs.size(), 2u);
  for (size_t t = 0; t < 2; ++t) {
    const json before(chat.begin(), chat.begin() + 2 + 2 * static_cast<long>(t));
    EXPECT_EQ(json(theirs[t].first), rendered(before)["prompt_tokens"]) << t;
    EXPECT_EQ(model->tokenizer()->decode(theirs[t].second, true), t == 0 ? "a fox" : "a hen");
  }
  // An answer that is cut stands whole before the next turn.
  ASSERT_EQ(capture({"-n", "1", "--out", "cut", "--answers", "dataset"}).exit_code, 0);
  EXPECT_EQ(answers("cut").at(0).second.size(), 1u);
  EXPECT_EQ(answers("cut").at(1).first, theirs[1].first);

  const ProgramResult own = capture({"-n", "6", "--out", "own"});
  ASSERT_EQ(own.exit_code, 0) << own.err;
  const auto ours = answers("own");
  ASSERT_EQ(ours.size(), 2u);
  json so_far = {chat[0], chat[1]};
  for (size_t t = 0; t < 2; ++t) {
    const json alone = rendered(so_far);
    EXPECT_EQ(json(ours[t].first), alone["prompt_tokens"]) << t;
    EXPECT_EQ(json(ours[t].second), alone["tokens"]) << t;
    so_far.push_back(says("assistant", alone["text"]));
    so_far.push_back(chat[3]);
  }
  EXPECT_EQ(parse_lines(own.out).at(0)["answers_now"], 2);
  // The second turn is too long, the first is not.
  const std::string most = fmt::format("{}", ours[0].first.size());
  const ProgramResult cut = capture({"-n", "6", "--out", "short", "--max-prompt", most});
  ASSERT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_EQ(parse_lines(cut.out).at(0)["turns_left_out"], 1);
  EXPECT_EQ(answers("short").size(), 1u);

  const auto refuse = [&](const json& line, const std::string& named,
                          const std::string& kind = "dataset") {
    folder_.write("in.jsonl", "\n" + line.dump() + "\n");
    const ProgramResult result = capture({"-n", "4", "--out", "e", "--answers", kind});
    expect_refused(result, 7, named);
    EXPECT_THAT(result.err, ::testing::HasSubstr("in.jsonl: line 2"));
    EXPECT_THAT(result.err, ::testing::HasSubstr("hint: "));
  };
  const json hi = says("user", "hi"), fox = says("assistant", "a fox");
  refuse({{"messages", json::array({hi})}}, "no turn of the assistant");
  refuse({{"messages", {hi, fox}}, {"answer", "b"}}, "'answer' stands beside 'messages'");
  refuse({{"messages", {hi, says("assistant", " \n")}}}, "'messages[1].content' is empty");
  for (const char* kind : {"dataset", "self"}) {
    refuse({{"messages", {fox, hi}}}, "'messages[0].role' is 'assistant'", kind);
    refuse({{"messages", {hi, hi, fox}}}, "'messages[1].role' is 'user'", kind);
    refuse({{"messages", {hi, fox, says("system", "x")}}}, "'messages[2].role' is 'system'", kind);
    refuse({{"messages", {hi, says("tool", "x"), fox}}}, "'messages[1].role' is 'tool'", kind);
    refuse({{"messages", json::array({says("system", "x")})}}, "no message of the user", kind);
  }
  // What nobody answered is left away.
  folder_.write("in.jsonl", json({{"messages", {hi, fox, hi}}}).dump() + "\n");
  ASSERT_EQ(capture({"-n", "9", "--out", "open", "--answers", "dataset"}).exit_code, 0);
}

TEST_F(Capture, ResidualLayers) {
  folder_.write("in.jsonl", "{\"tokens\": [1, 5, 9]}\n");
  const ProgramResult result =
      capture({"-n", "4", "--ignore-eos", "--out", "d", "--residual", "0,2"});
  expect_refused(result, 2, "--ignore-eos");
  ASSERT_EQ(capture({"-n", "4", "--out", "d", "--residual", "0,2"}).exit_code, 0);
  const engine::SafeTensors part(folder_.file("d/part-00000.safetensors"));
  const auto& hidden = part.tensors().at("hidden").shape;
  EXPECT_EQ(part.tensors().at("residual").shape, (std::vector<int64_t>{hidden[0], 2 * hidden[1]}));
}

TEST_F(Capture, SkipsLongPrompts) {
  folder_.write("in.jsonl", "{\"tokens\": [1, 5, 9]}\n{\"tokens\": [1, 5, 9, 2]}\n");
  const ProgramResult result = capture({"-n", "4", "--out", "d", "--max-prompt", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json summary = parse_lines(result.out).at(0);
  EXPECT_EQ(summary["sequences"], 1);
  EXPECT_EQ(summary["skipped"], 1);
  expect_refused(capture({"-n", "4094", "--out", "e"}), 2, "in.jsonl: line 1");
}

// As it was called before it was a command of its own.
TEST_F(Capture, UnderItsOldNames) {
  folder_.write("in.jsonl", "{\"tokens\": [1, 5, 9]}\n");
  ASSERT_EQ(capture({"-n", "4", "--out", "new"}).exit_code, 0);
  const ProgramResult result =
      generate({"-n", "4", "--save-hidden=old", "--parallel", "2", "--seconds", "60"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(folder_.read("old/part-00000.safetensors"), folder_.read("new/part-00000.safetensors"));
}

TEST_F(Capture, Usage) {
  folder_.write("in.jsonl", "{\"tokens\": [1, 5, 9]}\n");
  const auto refuse = [&](const std::vector<std::string>& more, int code,
                          const std::string& named) {
    std::vector<std::string> arguments = {"-n", "4", "--out", "d"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refused(capture(arguments), code, named);
  };
  refuse({"--methods", "pld"}, 2, "--methods");
  refuse({"--top-logits", "3"}, 2, "--top-logits");
  refuse({"--temperature", "0"}, 2, "--temperature");
  refuse({"--residual", "1,x"}, 2, "'x' is not a layer");
  refuse({"--residual", "99"}, 2, "'99' is not a layer");
  refuse({"--residual", "eagle3"}, 2, "eagle3");  // too few layers
  refuse({"--jobs", "0"}, 2, "--jobs");
  refuse({"--max-time", "soon"}, 2, "--max-time: 'soon' is no time");
  refuse({"--answers", "other"}, 2, "--answers");
  expect_refused(capture({"-n", "4"}), 2, "--out");
  expect_refused(run({"capture", "-m", tiny_model(), "--in", "-", "--out", "d"}), 2,
                 "standard input");
  folder_.write("file", "x");
  expect_refused(capture({"-n", "4", "--out", "file"}), 7, "file");
}

}  // namespace
}  // namespace evalrun::tests
