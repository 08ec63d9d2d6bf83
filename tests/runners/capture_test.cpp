// What a capture saves is what decoding every prompt alone gives, bit for bit, however many are
// decoded at once, however prompts are cut, and however often it was stopped and begun again.
#include "runners/train/capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/formats/safetensors.h"
#include "tests/formats/test_files.h"
#include "tests/methods/support/harness.h"

namespace evalrun::tests {
namespace {

namespace fs = std::filesystem;
using engine::DType;
using engine::testing::TempFolder;
using runners::CaptureFolder;
using runners::CaptureOptions;
using runners::CaptureOutcome;
using runners::CapturePrompt;
using runners::CaptureSettings;
using ::testing::HasSubstr;

constexpr int kMaxNew = 24, kDModel = 32;
const std::vector<int> kLayers = {0, 1, 2};  // 2 = the stream before the final norm

struct Sequence {
  int32_t n_prompt = 0;
  bool ended = false;
  Tokens tokens;
  std::vector<uint16_t> hidden, residual;
  bool operator==(const Sequence&) const = default;
};
using Captured = std::map<int64_t, Sequence>;  // by line

template <typename T>
std::vector<T> values(const engine::SafeTensors& part, const std::string& name, DType dtype,
                      const std::vector<int64_t>& shape) {
  const engine::SafeTensor& t = part.tensors().at(name);
  EXPECT_EQ(t.dtype, dtype) << name;
  EXPECT_EQ(t.shape, shape) << name;
  std::vector<T> out(t.bytes.size() / sizeof(T));
  std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
  return out;
}

Captured read_part(const std::string& path, int layers) {
  const engine::SafeTensors part(path);
  EXPECT_EQ(part.metadata().at("format"), "evalrun-capture");
  EXPECT_EQ(part.metadata().at("version"), "1");
  EXPECT_EQ(part.tensors().size(), layers > 0 ? 7u : 6u);
  const int64_t s = part.tensors().at("line").shape.at(0);
  const auto line = values<int64_t>(part, "line", DType::kI64, {s});
  const auto start = values<int64_t>(part, "start", DType::kI64, {s + 1});
  const auto prompt = values<int32_t>(part, "prompt", DType::kI32, {s});
  const auto ended = values<uint8_t>(part, "ended", DType::kU8, {s});
  const int64_t n = start.back();
  const auto tokens = values<int32_t>(part, "tokens", DType::kI32, {n});
  const auto hidden = values<uint16_t>(part, "hidden", DType::kBF16, {n, kDModel});
  std::vector<uint16_t> residual;
  if (layers > 0)
    residual = values<uint16_t>(part, "residual", DType::kBF16, {n, layers * kDModel});
  Captured captured;
  EXPECT_EQ(start[0], 0);
  for (size_t i = 0; i < line.size(); ++i) {
    const auto cut = [&](const auto& all, int64_t width) {
      return std::remove_cvref_t<decltype(all)>(all.begin() + start[i] * width,
                                                all.begin() + start[i + 1] * width);
    };
    Sequence q{prompt[i], ended[i] == 1, cut(tokens, 1), cut(hidden, kDModel),
               cut(residual, layers * kDModel)};
    EXPECT_TRUE(captured.emplace(line[i], std::move(q)).second) << "line " << line[i] << " twice";
  }
  return captured;
}

std::vector<std::string> parts_of(const std::string& folder) {
  std::vector<std::string> parts;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") parts.push_back(entry.path().string());
  std::sort(parts.begin(), parts.end());
  return parts;
}

Captured read_all(const std::string& folder, int layers) {
  Captured all;
  for (const std::string& part : parts_of(folder))
    for (auto& [line, sequence] : read_part(part, layers))
      EXPECT_TRUE(all.emplace(line, sequence).second) << "line " << line << " in two parts";
  return all;
}

class Capture : public ::testing::Test {
 protected:
  // Prompts of 1 to 90 tokens; lines are not their indices: the file has empty ones.
  Capture() : model_(small_model(3)) {
    base::Rng rng(5);
    for (int i = 0; i < 30; ++i)
      prompts_.push_back({2 * i + 1, random_tokens(rng, 1 + (i * 37) % 90, 24), {}});
    settings_.describe(*model_);
    settings_.kv_dtype = "f32", settings_.bits = "cross-isa";
    settings_.max_new = kMaxNew;
    settings_.in_hash = "1234";
    settings_.n_lines = 61;
    options_.max_new = kMaxNew;
    options_.parallel = 7;
    options_.stop_ids = {stop_token()};
    options_.part_tokens = 400;
    options_.prompt_rows = 50;
  }

  Tokens alone(const Tokens& prompt, const Tokens& stop_ids) const {
    const auto session = make_session(model_);
    const auto ar = build_method("ar", model_);
    Turn turn{prompt};
    turn.max_new = kMaxNew;
    turn.stop_ids = stop_ids;
    return run(*ar, *session, turn).tokens;
  }
  // One that ends some answers and not all.
  int32_t stop_token() const {
    std::map<int32_t, int> answers;
    for (const CapturePrompt& p : prompts_) {
      Tokens tokens = alone(p.tokens, {});
      std::sort(tokens.begin(), tokens.end());
      tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
      for (const int32_t t : tokens) ++answers[t];
    }
    for (const auto& [token, count] : answers)
      if (count >= 5 && count <= 25) return token;
    ADD_FAILURE() << "no token ends some answers";
    return 0;
  }

  // Given answers or those of the one decode loop, alone; states from one forward over the whole
  // text.
  Captured expected(const std::vector<int>& layers) const {
    Captured all;
    for (const CapturePrompt& p : prompts_) {
      Sequence q;
      q.n_prompt = static_cast<int32_t>(p.tokens.size());
      q.tokens = p.tokens;
      Tokens answer = p.answer.empty() ? alone(p.tokens, options_.stop_ids) : p.answer;
      if (answer.size() > kMaxNew) answer.resize(kMaxNew);
      q.tokens.insert(q.tokens.end(), answer.begin(), answer.end());
      q.ended = answer.back() == options_.stop_ids[0];
      std::vector<engine::Row> rows(q.tokens.size() - 1);
      for (size_t i = 0; i < rows.size(); ++i) {
        rows[i].token = q.tokens[i];
        rows[i].parent = static_cast<int32_t>(i) - 1;
        rows[i].hidden = true;
      }
      const auto session = make_session(model_);
      const auto result = session->forward({.rows = rows, .residual_layers = layers});
      for (int i = 0; i < static_cast<int>(rows.size()); ++i) {
        for (const float x : result.hidden_row(i)) q.hidden.push_back(engine::float_to_bfloat16(x));
        for (const auto& layer : result.residual)
          for (const float x : layer.row(i)) q.residual.push_back(engine::float_to_bfloat16(x));
      }
      q.hidden.resize(q.tokens.size() * kDModel);
      q.residual.resize(q.tokens.size() * kDModel * layers.size());
      all.emplace(p.line, std::move(q));
    }
    return all;
  }

  // Hidden states of a text whose last token is not fed.
  std::vector<uint16_t> hidden_of(const Tokens& tokens) const {
    std::vector<engine::Row> rows(tokens.size() - 1);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].token = tokens[i];
      rows[i].parent = static_cast<int32_t>(i) - 1;
      rows[i].hidden = true;
    }
    const auto session = make_session(model_);
    const auto result = session->forward({.rows = rows});
    std::vector<uint16_t> hidden;
    for (int i = 0; i < static_cast<int>(rows.size()); ++i)
      for (const float x : result.hidden_row(i)) hidden.push_back(engine::float_to_bfloat16(x));
    hidden.resize(tokens.size() * kDModel);
    return hidden;
  }

  // Three turns for every third prompt. The prompt of a turn is all before it and three tokens
  // more; of every ninth line the last turn forgets the first token, as templates do that rewrite
  // earlier turns.
  static bool forgets(int64_t line) { return line % 9 == 1; }
  void make_dialogues() {
    settings_.dialogues = true;
    for (CapturePrompt& p : prompts_) {
      if (p.line % 3 != 1) continue;
      p.most_tokens = p.tokens.size() + 2 * (kMaxNew + 3);
      p.next = [first = p.tokens, line = p.line, given = !p.answer.empty()](
                   std::span<const Tokens> answers) -> std::optional<runners::CaptureTurn> {
        if (answers.size() == 3) return std::nullopt;
        runners::CaptureTurn turn;
        turn.prompt = first;
        for (size_t t = 0; t < answers.size(); ++t) {
          turn.prompt.insert(turn.prompt.end(), answers[t].begin(), answers[t].end());
          const auto word = static_cast<int32_t>((line + static_cast<int64_t>(t)) % 20);
          turn.prompt.insert(turn.prompt.end(), {word, word + 1, word + 2});
        }
        if (answers.size() == 2 && forgets(line)) turn.prompt.erase(turn.prompt.begin());
        if (given) turn.answer = {3, 4, static_cast<int32_t>(answers.size())};
        return turn;
      };
    }
  }

  // (line, tokens, answers as first and last, hidden) of every sequence, in order of lines.
  using Text =
      std::tuple<int64_t, Tokens, std::vector<std::pair<int32_t, int32_t>>, std::vector<uint16_t>>;
  std::vector<Text> expected_texts() const {
    std::vector<Text> texts;
    for (const CapturePrompt& p : prompts_) {
      std::vector<Tokens> answers;
      Text text{p.line, {}, {}, {}};
      runners::CaptureTurn turn{p.tokens, p.answer};
      while (true) {
        auto& [line, tokens, spans, hidden] = text;
        if (!std::equal(tokens.begin(), tokens.end(), turn.prompt.begin(),
                        turn.prompt.begin() +
                            static_cast<long>(std::min(tokens.size(), turn.prompt.size())))) {
          hidden = hidden_of(tokens);
          texts.push_back(std::move(text));
          text = Text{p.line, {}, {}, {}};
        }
        Tokens answer = turn.answer.empty() ? alone(turn.prompt, options_.stop_ids) : turn.answer;
        if (answer.size() > kMaxNew) answer.resize(kMaxNew);
        tokens = turn.prompt;
        tokens.insert(tokens.end(), answer.begin(), answer.end());
        spans.emplace_back(static_cast<int32_t>(turn.prompt.size()),
                           static_cast<int32_t>(tokens.size()));
        answers.push_back(answer);
        const auto next = p.next ? p.next(answers) : std::nullopt;
        if (!next) break;
        turn = *next;
      }
      std::get<3>(text) = hidden_of(std::get<1>(text));
      texts.push_back(std::move(text));
    }
    return texts;
  }
  static std::vector<Text> texts_of(const std::string& folder) {
    std::vector<Text> texts;
    for (const std::string& path : parts_of(folder)) {
      const engine::SafeTensors part(path);
      const int64_t s = part.tensors().at("line").shape.at(0);
      const int64_t a = part.tensors().at("answer_first").shape.at(0);
      const auto line = values<int64_t>(part, "line", DType::kI64, {s});
      const auto start = values<int64_t>(part, "start", DType::kI64, {s + 1});
      const auto of = values<int64_t>(part, "answers", DType::kI64, {s + 1});
      const auto first = values<int32_t>(part, "answer_first", DType::kI32, {a});
      const auto last = values<int32_t>(part, "answer_last", DType::kI32, {a});
      const auto prompt = values<int32_t>(part, "prompt", DType::kI32, {s});
      const auto tokens = values<int32_t>(part, "tokens", DType::kI32, {start.back()});
      const auto hidden = values<uint16_t>(part, "hidden", DType::kBF16, {start.back(), kDModel});
      EXPECT_EQ(of.back(), a);
      for (size_t i = 0; i < line.size(); ++i) {
        Text text{line[i],
                  Tokens(tokens.begin() + start[i], tokens.begin() + start[i + 1]),
                  {},
                  {hidden.begin() + start[i] * kDModel, hidden.begin() + start[i + 1] * kDModel}};
        for (auto k = static_cast<size_t>(of[i]); k < static_cast<size_t>(of[i + 1]); ++k)
          std::get<2>(text).emplace_back(first[k], last[k]);
        EXPECT_EQ(prompt[i], std::get<2>(text).at(0).first);
        texts.push_back(std::move(text));
      }
    }
    std::stable_sort(texts.begin(), texts.end(),
                     [](const Text& x, const Text& y) { return std::get<0>(x) < std::get<0>(y); });
    return texts;
  }

  CaptureOutcome capture(const std::string& path) {
    CaptureFolder folder(path, settings_);
    return capture(folder);
  }
  CaptureOutcome capture(CaptureFolder& folder) {
    return runners::capture(model_, session_options(1), prompts_, options_, folder, clock_);
  }

  void refuse(base::ExitCode code, const std::string& part) {
    try {
      (void)CaptureFolder(folder_.path(), settings_);
      ADD_FAILURE() << "not refused: " << part;
    } catch (const base::Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_THAT(e.what(), HasSubstr(part));
      EXPECT_FALSE(e.hint().empty()) << e.what();
    }
  }

  std::shared_ptr<const engine::Model> model_;
  std::vector<CapturePrompt> prompts_;
  CaptureSettings settings_;
  CaptureOptions options_;
  base::SteadyClock clock_;
  TempFolder folder_;
};

TEST_F(Capture, EqualsDecodingAlone) {
  settings_.residual_layers = options_.residual_layers = kLayers;
  const Captured alone = expected(kLayers);
  int ended = 0;
  for (const auto& [line, sequence] : alone) ended += sequence.ended;
  EXPECT_GT(ended, 0);
  EXPECT_LT(ended, static_cast<int>(alone.size()));
  // All at once and in sequence, prompts whole and in single rows.
  for (const auto& [parallel, rows] : {std::pair{1, 256}, {7, 50}, {30, 1}, {64, 1024}}) {
    SCOPED_TRACE(fmt::format("parallel {}, prompt rows {}", parallel, rows));
    options_.parallel = parallel, options_.prompt_rows = rows;
    const TempFolder folder;
    const CaptureOutcome outcome = capture(folder.path());
    EXPECT_EQ(outcome.sequences, 30);
    EXPECT_EQ(outcome.left, 0);
    EXPECT_FALSE(outcome.interrupted);
    const Captured got = read_all(folder.path(), 3);
    EXPECT_GT(parts_of(folder.path()).size(), 2u);
    ASSERT_EQ(got.size(), alone.size());
    int64_t prompt = 0, generated = 0;
    for (const auto& [line, sequence] : alone) {
      EXPECT_EQ(got.at(line).tokens, sequence.tokens) << line;
      EXPECT_TRUE(got.at(line) == sequence) << line;
      prompt += sequence.n_prompt;
      generated += static_cast<int64_t>(sequence.tokens.size()) - sequence.n_prompt;
    }
    EXPECT_EQ(outcome.prompt_tokens, prompt);
    EXPECT_EQ(outcome.generated, generated);
  }
}

// A data set's answers: of one token to more than fit, some with the stop token at their end.
TEST_F(Capture, GivenAnswersAreTakenAsTheyAre) {
  base::Rng rng(6);
  for (size_t i = 0; i < prompts_.size(); ++i) {
    Tokens& answer = prompts_[i].answer;
    answer = random_tokens(rng, 1 + static_cast<int>(i) % 29, 24);
    if (i % 2 == 0) answer.push_back(options_.stop_ids[0]);
  }
  options_.residual_layers = settings_.residual_layers = kLayers;
  const CaptureOutcome outcome = capture(folder_.path());
  const Captured captured = read_all(folder_.path(), 3);
  EXPECT_EQ(captured, expected(kLayers));
  int64_t ended = 0, answers = 0;
  for (const auto& [line, q] : captured)
    ended += q.ended ? 1 : 0, answers += static_cast<int64_t>(q.tokens.size()) - q.n_prompt;
  EXPECT_GT(ended, 5);
  EXPECT_LT(ended, 25);
  EXPECT_EQ(outcome.generated, answers);
  const auto info = nlohmann::json::parse(base::read_file(folder_.file("capture.json")));
  EXPECT_EQ(info["version"], 1) << "of the settings' answers, not of the prompts'";
}

TEST_F(Capture, GivenAnswersGoOnAfterAStop) {
  settings_.answers = "dataset";
  base::Rng rng(8);
  for (CapturePrompt& p : prompts_) p.answer = random_tokens(rng, 9, 24);
  int asked = 0;
  options_.stop = [&] { return ++asked > 4; };
  EXPECT_TRUE(capture(folder_.path()).interrupted);
  options_.stop = {};
  EXPECT_GT(capture(folder_.path()).sequences, 0);
  EXPECT_EQ(read_all(folder_.path(), 0), expected({}));
  const auto info = nlohmann::json::parse(base::read_file(folder_.file("capture.json")));
  EXPECT_EQ(info["version"], 2);  // older programs must not add their own answers
}

// The model's own answers, given: the same as decoding them.
TEST_F(Capture, GivenItsOwnAnswersItSavesTheSame) {
  const Captured own = expected({});
  for (CapturePrompt& p : prompts_) {
    const Sequence& q = own.at(p.line);
    p.answer.assign(q.tokens.begin() + q.n_prompt, q.tokens.end());
  }
  (void)capture(folder_.path());
  EXPECT_EQ(read_all(folder_.path(), 0), own);
}

// Every answer of a dialogue is the one of its whole prompt alone, and nothing is fed twice where
// the prompt goes on behind the answer before.
TEST_F(Capture, DialoguesTurnByTurn) {
  make_dialogues();
  const std::vector<Text> alone = expected_texts();
  int64_t answers = 0, fed = 0, generated = 0;
  for (const auto& [line, tokens, spans, hidden] : alone) {
    answers += static_cast<int64_t>(spans.size());
    fed += static_cast<int64_t>(tokens.size());
    for (const auto& [first, last] : spans) generated += last - first;
  }
  ASSERT_EQ(answers, 50);  // 10 of 30 lines have three
  ASSERT_GT(alone.size(), 30u) << "no line that forgets";
  ASSERT_LT(alone.size(), 40u);
  for (const auto& [parallel, rows] : {std::pair{1, 256}, {7, 50}, {30, 1}, {64, 1024}}) {
    SCOPED_TRACE(fmt::format("parallel {}, prompt rows {}", parallel, rows));
    options_.parallel = parallel, options_.prompt_rows = rows;
    const TempFolder folder;
    const CaptureOutcome outcome = capture(folder.path());
    EXPECT_TRUE(texts_of(folder.path()) == alone);
    EXPECT_EQ(outcome.lines, 30);
    EXPECT_EQ(outcome.sequences, static_cast<int64_t>(alone.size()));
    EXPECT_EQ(outcome.answers, answers);
    EXPECT_EQ(outcome.generated, generated);
    EXPECT_EQ(outcome.prompt_tokens + outcome.generated, fed);
    const auto info = nlohmann::json::parse(base::read_file(folder.file("capture.json")));
    EXPECT_EQ(info["version"], 3) << "older programs would learn the first answer alone";
    EXPECT_EQ(capture(folder.path()).sequences, 0) << "its parts cannot be read again";
  }
}

TEST_F(Capture, DialoguesOfGivenAnswers) {
  for (CapturePrompt& p : prompts_) p.answer = {5, 6, 7, options_.stop_ids[0]};
  settings_.answers = "dataset";
  make_dialogues();
  int asked = 0;
  options_.stop = [&] { return ++asked > 4; };
  EXPECT_TRUE(capture(folder_.path()).interrupted);
  options_.stop = {};
  EXPECT_GT(capture(folder_.path()).sequences, 0);
  EXPECT_TRUE(texts_of(folder_.path()) == expected_texts());
}

TEST_F(Capture, WithoutResidualLayers) {
  capture(folder_.path());
  EXPECT_EQ(read_all(folder_.path(), 0), expected({}));
}

// Killed while it wrote a part: the last one is not there, a temporary file is.
TEST_F(Capture, GoesOnAfterAKill) {
  capture(folder_.path());
  const Captured whole = read_all(folder_.path(), 0);
  const std::string last = parts_of(folder_.path()).back();
  const size_t lost = read_part(last, 0).size();
  const std::string first = base::read_file(parts_of(folder_.path()).front());
  fs::remove(last);
  const std::string left = last + ".tmp.4711";
  folder_.write(fs::path(left).filename().string(), "half a part");
  CaptureFolder folder(folder_.path(), settings_);
  EXPECT_EQ(folder.n_sequences(), 30 - static_cast<int64_t>(lost));
  EXPECT_FALSE(fs::exists(left));
  const CaptureOutcome outcome = capture(folder);
  EXPECT_EQ(outcome.sequences, static_cast<int64_t>(lost));
  EXPECT_EQ(folder.n_sequences(), 30);
  EXPECT_EQ(read_all(folder_.path(), 0), whole);
  EXPECT_EQ(base::read_file(parts_of(folder_.path()).front()), first) << "parts are never changed";
}

TEST_F(Capture, NothingIsDoneTwice) {
  capture(folder_.path());
  const CaptureOutcome outcome = capture(folder_.path());
  EXPECT_EQ(outcome.sequences, 0);
  EXPECT_EQ(outcome.left, 0);
}

// Whatever ends it: answers that were begun are whole, and the next start does the rest.
TEST_F(Capture, EndsInAnOrderlyWay) {
  const Captured whole = expected({});
  const auto expect_part_then_whole = [&](const CaptureOptions& options, bool interrupted) {
    const TempFolder folder;
    const CaptureOptions before = options_;
    options_ = options;
    const CaptureOutcome outcome = capture(folder.path());
    EXPECT_EQ(outcome.interrupted, interrupted);
    EXPECT_GT(outcome.sequences, 0);
    EXPECT_GT(outcome.left, 0);
    EXPECT_EQ(outcome.sequences + outcome.left, 30);
    for (const auto& [line, sequence] : read_all(folder.path(), 0))
      EXPECT_TRUE(sequence == whole.at(line)) << line;
    options_ = before;
    capture(folder.path());
    EXPECT_EQ(read_all(folder.path(), 0), whole);
  };
  CaptureOptions options = options_;
  int forwards = 0;
  options.stop = [&] { return ++forwards > 40; };
  expect_part_then_whole(options, true);
  options = options_;
  options.limit_tokens = 600;
  expect_part_then_whole(options, false);
}

TEST_F(Capture, LimitCountsEarlierParts) {
  options_.limit_tokens = 500;
  capture(folder_.path());
  EXPECT_EQ(capture(folder_.path()).sequences, 0) << "there are enough already";
}

TEST_F(Capture, OtherSettingsAreRefused) {
  capture(folder_.path());
  const CaptureSettings before = settings_;
  const auto refuse_change = [&](const std::string& text, const auto& change) {
    settings_ = before;
    change(settings_);
    refuse(base::ExitCode::kUsage, text);
  };
  refuse_change("max_new is 24 there and 25 now", [](auto& s) { s.max_new = 25; });
  refuse_change("model.hash", [](auto& s) { s.model_hash = "ab"; });
  refuse_change("model.dtype", [](auto& s) { s.dtype = "q4"; });
  refuse_change("engine.kv_dtype is \"f32\" there and \"int8\" now",
                [](auto& s) { s.kv_dtype = "int8"; });
  refuse_change("residual_layers is [] there and [0,1,2] now", [](auto& s) {
    s.residual_layers = {0, 1, 2};
  });
  refuse_change("answers is \"self\" there and \"dataset\" now",
                [](auto& s) { s.answers = "dataset"; });
  refuse_change("dialogues is false there and true now", [](auto& s) { s.dialogues = true; });
  refuse_change("in_hash", [](auto& s) { s.in_hash = "1235"; });
  refuse_change("n_lines", [](auto& s) { s.n_lines = 62; });
  settings_ = before;
  settings_.model_path = "elsewhere";  // the same model, moved
  EXPECT_EQ(CaptureFolder(folder_.path(), settings_).n_sequences(), 30);
  // Begun by a version that knew no other answers.
  auto old = nlohmann::json::parse(base::read_file(folder_.file("capture.json")));
  old.erase("answers"), old.erase("dialogues");
  folder_.write("capture.json", old.dump());
  EXPECT_EQ(CaptureFolder(folder_.path(), settings_).n_sequences(), 30);
}

TEST_F(Capture, BrokenFoldersAreRefused) {
  capture(folder_.path());
  const std::string good = base::read_file(folder_.file("capture.json"));
  for (const std::string& bad : {good.substr(0, good.size() / 2), std::string(), std::string("[]"),
                                 std::string("{\"format\": \"evalrun-capture\"}")}) {
    folder_.write("capture.json", bad);
    refuse(base::ExitCode::kData, "capture.json");
  }
  fs::remove(folder_.file("capture.json"));
  refuse(base::ExitCode::kData, "no capture.json");
  folder_.write("capture.json", good);

  const std::string part = base::read_file(folder_.file("part-00001.safetensors"));
  folder_.write("part-00001.safetensors", part.substr(0, part.size() - 1));
  refuse(base::ExitCode::kData, "part-00001.safetensors");
  folder_.write("part-00001.safetensors", base::read_file(folder_.file("part-00000.safetensors")));
  refuse(base::ExitCode::kData, "which another part holds too");
  folder_.write("part-00001.safetensors", engine::testing::safetensors_bytes("{}", ""));
  refuse(base::ExitCode::kData, "part-00001.safetensors");
  folder_.write("part-00001.safetensors", part);
  EXPECT_EQ(CaptureFolder(folder_.path(), settings_).n_sequences(), 30);
}

TEST_F(Capture, OneProcessAtATime) {
  const CaptureFolder folder(folder_.path(), settings_);
  refuse(base::ExitCode::kUsage, "another evalrun writes to this folder");
}

// No file may grow beyond 10 kB, and a part needs more: what the disk has stays as it is, and the
// next start does the rest.
TEST_F(Capture, FullDisk) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{10'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string text;
  try {
    capture(folder_.path());
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kData);
    text = e.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(text, HasSubstr("part-00000.safetensors: cannot write"));
  EXPECT_THAT(text, HasSubstr("free some space"));
  EXPECT_TRUE(parts_of(folder_.path()).empty());
  capture(folder_.path());
  EXPECT_EQ(read_all(folder_.path(), 0), expected({}));
}

TEST_F(Capture, WhatDoesNotFitIntoMemory) {
  options_.parallel = 30;
  options_.max_new = 1'000'000'000;
  CaptureFolder folder(folder_.path(), settings_);
  try {
    capture(folder);
    ADD_FAILURE() << "not refused";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kData);
    EXPECT_THAT(e.what(), HasSubstr("number of sequences"));
  }
}

TEST_F(Capture, ProgressEndsAtTheTotal) {
  runners::CaptureProgress last;
  options_.progress = [&](const runners::CaptureProgress& p) {
    EXPECT_GE(p.done, last.done);
    EXPECT_GE(p.left_s, 0);
    last = p;
  };
  const CaptureOutcome outcome = capture(folder_.path());
  EXPECT_EQ(last.done, 30);
  EXPECT_EQ(last.total, 30);
  EXPECT_EQ(last.generated, outcome.generated);
  EXPECT_EQ(last.left_s, 0);
}

}  // namespace
}  // namespace evalrun::tests
