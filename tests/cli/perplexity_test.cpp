// evalrun perplexity, against sums made here from the logits that `generate` prints.
#include <cmath>

#include "tests/cli/cli_test.h"

namespace evalrun::tests {
namespace {

constexpr int kVocabulary = 512;  // of the tiny model

class Perplexity : public CommandTest {
 protected:
  Perplexity() {
    std::string text;
    for (int i = 0; i < 12; ++i) text += "the cat sat on the mat and then it ran far away. ";
    folder_.write("text.txt", text + "\n");
    folder_.write("text.jsonl", json({{"text", text}}).dump() + "\n");
    ids_ = parse_lines(run({"tokenize", "-m", tiny_model(), "--in", "text.jsonl"}).out)[0]["ids"]
               .get<std::vector<int>>();
  }
  json perplexity(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"perplexity", "-m", tiny_model(), "--file", "text.txt"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out);
  }
  // Negative log-likelihood of tokens [first, end) of one sequence, from all its logits.
  double expected_nll(const std::vector<int>& sequence, size_t first) {
    std::string input;
    for (size_t i = first; i < sequence.size(); ++i)
      input +=
          json({{"tokens", std::vector<int>(sequence.begin(),
                                            sequence.begin() + static_cast<std::ptrdiff_t>(i))}})
              .dump() +
          "\n";
    folder_.write("prefixes.jsonl", input);
    const auto lines = parse_lines(run({"generate", "-m", tiny_model(), "--in", "prefixes.jsonl",
                                        "-n", "1", "--top-logits", std::to_string(kVocabulary)})
                                       .out);
    EXPECT_EQ(lines.size(), sequence.size() - first);
    double nll = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      double sum = 0, own = 0;
      for (const json& pair : lines[i]["top"][0]) {
        sum += std::exp(pair[1].get<double>());
        if (pair[0] == sequence[first + i]) own = pair[1];
      }
      nll += std::log(sum) - own;
    }
    return nll;
  }
  std::vector<int> ids_;
};

// The logits are the same bits; only float64 sums are in another order.
constexpr double kRelative = 1e-12;

TEST_F(Perplexity, WholeText) {
  const json found = perplexity({});
  // The newline at the end belongs to the text here.
  folder_.write("text.jsonl", json({{"text", folder_.read("text.txt")}}).dump() + "\n");
  const auto ids =
      parse_lines(run({"tokenize", "-m", tiny_model(), "--in", "text.jsonl"}).out)[0]["ids"]
          .get<std::vector<int>>();
  const double nll = expected_nll(ids, 1);
  EXPECT_EQ(found["tokens"], ids.size() - 1);
  EXPECT_NEAR(found["nll"].get<double>(), nll, kRelative * nll);
  EXPECT_NEAR(found["perplexity"].get<double>(),
              std::exp(nll / static_cast<double>(ids.size() - 1)), 1e-9);
}

TEST_F(Perplexity, ChunksCountTheirSecondHalves) {
  constexpr size_t kChunk = 32;
  ASSERT_GT(ids_.size(), 2 * kChunk);
  ASSERT_NE(ids_.size() % kChunk, 0u) << "the remainder must be there to be dropped";
  const json found = perplexity({"--chunk", std::to_string(kChunk)});
  double nll = 0;
  size_t tokens = 0;
  for (size_t begin = 0; begin + kChunk <= ids_.size(); begin += kChunk) {
    const auto first = ids_.begin() + static_cast<std::ptrdiff_t>(begin);
    nll += expected_nll(std::vector<int>(first, first + kChunk), kChunk / 2 + 1);
    tokens += kChunk / 2 - 1;
  }
  EXPECT_EQ(found["tokens"], tokens);
  EXPECT_NEAR(found["nll"].get<double>(), nll, kRelative * nll);
}

TEST_F(Perplexity, AgainstItself) {
  const json found = perplexity({"--dtype", "f32", "--against", "f32"});
  EXPECT_EQ(found["perplexity_ref"], found["perplexity"]);
  EXPECT_EQ(found["perplexity_ratio"], 1.0);
  EXPECT_EQ(found["perplexity_ratio_se"], 0.0);
  EXPECT_EQ(found["dtype"], "f32");
  EXPECT_EQ(found["dtype_ref"], "f32");
  EXPECT_EQ(found["kl"], 0.0);
  EXPECT_EQ(found["same_top1"], 1.0);
}

TEST_F(Perplexity, BadInput) {
  const auto refuse = [&](std::vector<std::string> more, int code, const std::string& named) {
    SCOPED_TRACE(named);
    std::vector<std::string> arguments = {"perplexity", "-m", tiny_model()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refused(run(arguments), code, named);
  };
  refuse({"--file", "absent.txt"}, 7, "absent.txt");
  refuse({"--file", "text.txt", "--chunk", "2"}, 2, "--chunk");
  refuse({"--file", "text.txt", "--chunk", "4000"}, 7, "4000 are needed");
  refuse({"--file", "text.txt", "--against", "q9"}, 2, "q9");
  folder_.write("empty.txt", "");
  refuse({"--file", "empty.txt"}, 7, "empty.txt");
  std::string text;
  for (int i = 0; i < 5000; ++i) text += " 1";
  folder_.write("long.txt", text);
  refuse({"--file", "long.txt"}, 7, "context");
}

}  // namespace
}  // namespace evalrun::tests
