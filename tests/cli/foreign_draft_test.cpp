// A draft model of another tokenizer, through the built program (sps:vocab=intersect, vocab=text):
// the tiny target itself, with its ids in another order and fewer merges.
#include <cstring>
#include <filesystem>

#include "tests/cli/cli_test.h"
#include "tests/e2e/stored_run.h"

namespace evalrun::tests {
namespace {

using ::testing::HasSubstr;

constexpr int kIds = 512, kSpecial = 3;  // of tiny-llama

// Any order but its own; 509 is a prime.
int other_id(int id) { return id < kSpecial ? id : kSpecial + ((id - kSpecial) * 7 + 11) % 509; }

class ForeignDraftModel : public CommandTest {
 protected:
  void SetUp() override {
    std::string prompts;
    for (const char* text : {"the cat sat on the mat and the cat", "a dog and a cat, and the dog",
                             "one two three one two three one", "it was the time of the time"})
      prompts += json({{"id", text}, {"prompt", text}, {"chat", false}}).dump() + "\n";
    folder_.write("prompts.jsonl", prompts);
  }

  // Without the last `fewer` merges words are other tokens, though each token has its text.
  std::string draft_model(int fewer) {
    const std::filesystem::path from = tiny_model();
    const std::string to = fewer == 0 ? "same-merges" : "fewer-merges";
    for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json"})
      folder_.write(to + "/" + name, base::read_file((from / name).string()));
    json tokenizer = json::parse(base::read_file((from / "tokenizer.json").string()));
    json& model = tokenizer["model"];
    for (auto& [text, id] : model["vocab"].items()) id = other_id(id.get<int>());
    json& merges = model["merges"];
    merges.erase(merges.end() - fewer, merges.end());
    folder_.write(to + "/tokenizer.json", tokenizer.dump());
    folder_.write(to + "/model.safetensors",
                  reordered(base::read_file((from / "model.safetensors").string())));
    return folder_.file(to);
  }

  ProgramResult with_draft(const std::string& command, const std::string& draft,
                           const std::string& methods, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {command,
                                          "-m",
                                          tiny_model(),
                                          "--draft",
                                          draft,
                                          "--methods",
                                          methods,
                                          "--tasks",
                                          "jsonl:prompts.jsonl",
                                          "-t",
                                          "1",
                                          "--db",
                                          command + ".db",
                                          "--dtype",
                                          "f32"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(std::move(arguments));
  }

 private:
  // The rows of the embedding, which is the output matrix as well, by the other ids.
  static std::string reordered(std::string file) {
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    const json tensors = json::parse(file.substr(sizeof header, header));
    const json& rows = tensors["model.embed_tokens.weight"];
    EXPECT_FALSE(tensors.contains("lm_head.weight"));
    const auto begin = rows["data_offsets"][0].get<size_t>();
    const size_t width = (rows["data_offsets"][1].get<size_t>() - begin) / kIds;
    const std::string before = file;
    for (size_t id = 0; id < kIds; ++id)
      std::memcpy(file.data() + sizeof header + header + begin +
                      static_cast<size_t>(other_id(static_cast<int>(id))) * width,
                  before.data() + sizeof header + header + begin + id * width, width);
    return file;
  }
};

// What is drafted is what the target says, so that nearly all is accepted: the map is the right
// one.
TEST_F(ForeignDraftModel, OfTheTargetItselfIsAcceptedAlmostAlways) {
  const std::string draft = draft_model(0);
  for (const char* vocab : {"intersect", "text"}) {
    const ProgramResult result =
        with_draft("run", draft, fmt::format("ar,sps:k=3,vocab={}", vocab),
                   {"-n", "40", "-w", "0", "--no-aa", "--ignore-eos", "--label", vocab});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::string of_run = fmt::format(
        "FROM turn JOIN generation ON generation.id = turn.generation_id JOIN arm ON "
        "arm.id = generation.arm_id JOIN run ON run.id = arm.run_id WHERE run.label = "
        "'{}' AND arm.method = ",
        vocab);
    const auto value = [&](const std::string& of) {
      return query_value(folder_.file("run.db"), of);
    };
    EXPECT_GT(
        std::stod(value("SELECT 1.0 * sum(turn.n_tokens) / sum(turn.n_steps) " + of_run + "'sps'")),
        vocab == std::string("text") ? 2.5 : 3.5)  // of 4; the text's last piece is left out
        << vocab;
    EXPECT_EQ(value("SELECT count(DISTINCT hex(tokens)) " + of_run + "'ar'"), "4");
    EXPECT_EQ(value("SELECT group_concat(DISTINCT hex(tokens)) " + of_run + "'sps'"),
              value("SELECT group_concat(DISTINCT hex(tokens)) " + of_run + "'ar'"));
  }
  expect_refused(with_draft("run", draft, "sps:k=3", {"--plan"}), 2, "another vocabulary");
}

// Words in other tokens, and a model of another family: certificates of both ways.
TEST_F(ForeignDraftModel, IsLosslessGreedyAndSampled) {
  for (const std::string& draft : {draft_model(120), other_vocabulary()}) {
    const ProgramResult result =
        with_draft("verify", draft, "sps:k=3,vocab=intersect,sps:k=3,vocab=text",
                   {"--parts", "greedy", "sampled", "steps", "-n", "24", "--contexts", "2",
                    "--draws", "200", "--top-k", "8", "--json"});
    ASSERT_TRUE(result.exit_code == 0 || result.exit_code == 4) << result.err;
    const json out = json::parse(result.out);
    ASSERT_EQ(out.size(), 2u);
    for (const json& c : out) {
      EXPECT_EQ(c["greedy"]["identical"], 4) << c["arm"];
      EXPECT_EQ(c["greedy"]["outcome"], "holds");
      EXPECT_NE(c["sampled"]["outcome"], "fails");
      EXPECT_FALSE(c["steps"]["result"]["rejected"].get<bool>());
    }
    EXPECT_EQ(out[1]["sampled"]["identical"], 4) << "text is verified by match: the same tokens";
  }
}

}  // namespace
}  // namespace evalrun::tests
