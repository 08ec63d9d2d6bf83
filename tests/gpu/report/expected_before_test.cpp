// The model of expected times on the kernels of commit 0a5732b: its arithmetic, as it is printed,
// and that the document says what it says.
#include "tests/gpu/report/expected_before.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "tests/gpu/report/calculator.h"
#include "tests/gpu/report/expected_launch.h"
#include "tests/gpu/report/shapes.h"

namespace evalrun::engine::gpu_report {
namespace {

using ::testing::HasSubstr;
using enum WeightFormat;

ModelConfig shape_of(const std::string& name) {
  for (const Shape& s : planned_shapes())
    if (s.config.name == name) return s.config;
  return {};
}
ExpectedStep before(const char* model, WeightFormat format, int rows, int context = 512) {
  return expected_step_before(shape_of(model), format, rows, context, known_gpus().front());
}
ExpectedStep after(const char* model, WeightFormat format, int rows, int context = 512) {
  return expected_step(shape_of(model), format, rows, context, known_gpus().front());
}
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(ExpectedBefore, CalculatorKnowsWhatComesFirst) {
  EXPECT_DOUBLE_EQ(Calculator::value_of("1 + (4 * 2 + 6) / 7 - 8 / 4 / 2 * 3"), 0);
  EXPECT_DOUBLE_EQ(Calculator::value_of("2 * (3 - (1 + 1))"), 2);
  EXPECT_THROW(Calculator::value_of("1 + (2"), std::invalid_argument);
  EXPECT_THROW(Calculator::value_of("1 + 2)"), std::invalid_argument);
  EXPECT_THROW(Calculator::value_of("1 +"), std::invalid_argument);
}

// A launch whose weights were read one line after the other, by hand.
TEST(ExpectedBefore, NormsWaitForOneLineAfterTheOther) {
  for (const ExpectedKernel& k : before("Llama-2-7B", kBf16, 1).kernels) {
    if (k.kernel != "norm") continue;
    EXPECT_EQ(k.launches, 65);
    EXPECT_NEAR(k.in_graph_us, 1 + (4 * 650 + 16 * 700 + 4 * 280) / 1980.0 + 40960 / 4.48e6, 1e-9);
    EXPECT_DOUBLE_EQ(k.in_graph_us, k.alone_us) << "nothing overlapped";
  }
}

TEST(ExpectedBefore, LaunchesAreThoseOfToday) {
  for (const auto& [model, format, rows] : {std::tuple{"Llama-2-7B", kBf16, 1},
                                            {"Llama-2-7B", kInt8, 16},
                                            {"Llama-2-7B", kQ4, 1},
                                            {"Llama-2-7B", kBf16, 64},
                                            {"SmolLM2-135M", kBf16, 1}}) {
    const ExpectedStep b = before(model, format, rows), a = after(model, format, rows);
    ASSERT_EQ(b.kernels.size(), a.kernels.size());
    for (size_t i = 0; i < b.kernels.size(); ++i) {
      const ExpectedKernel &old = b.kernels[i], &now = a.kernels[i];
      EXPECT_EQ(old.kernel, now.kernel);
      EXPECT_EQ(old.launches, now.launches);
      // What must be read has not changed, nor what quarters of inputs leave in memory.
      EXPECT_DOUBLE_EQ(old.bytes, now.bytes) << model << ' ' << old.what;
    }
  }
}

TEST(ExpectedBefore, SaysNothingOfWhatWasNotCounted) {
  EXPECT_TRUE(before("Llama-2-7B", kF32, 1).kernels.empty());
  EXPECT_TRUE(before("Llama-2-7B", kBf16, 17).kernels.empty());
  EXPECT_TRUE(before("Llama-2-7B", kBf16, 65).kernels.empty());
  EXPECT_TRUE(before("Llama-2-7B", kInt8, 64).kernels.empty());
  EXPECT_TRUE(before("SmolLM2-135M", kBf16, 64).kernels.empty());
}

// What the document says of causes.
TEST(ExpectedBefore, NormsAndStartsAreMostOfOneRow) {
  const ExpectedStep b = before("Llama-2-7B", kBf16, 1), a = after("Llama-2-7B", kBf16, 1);
  const double all = b.in_graph_us() - a.in_graph_us();
  double norms = 0, launches = 0;
  for (size_t i = 0; i < b.kernels.size(); ++i) {
    const ExpectedKernel& k = b.kernels[i];
    launches += k.launches;
    if (k.kernel == "norm") norms = k.launches * (k.in_graph_us - a.kernels[i].in_graph_us - .7);
  }
  EXPECT_EQ(launches, 293);
  EXPECT_GT(norms, .5 * all);
  EXPECT_GT(norms + .7 * launches, .8 * all);
}

// Every sum that is printed gives the time behind it, within what its rounded numbers allow.
TEST(ExpectedBefore, ArithmeticGivesTheTimeBehindIt) {
  int sums = 0;
  for (const std::string& line : lines_of(before_and_after_tables())) {
    for (size_t at = line.find('`'); at != std::string::npos; at = line.find('`', at + 1)) {
      const size_t end = line.find('`', at + 1);
      const double us = std::stod(line.substr(line.find('|', end) + 1));
      EXPECT_NEAR(Calculator::value_of(line.substr(at + 1, end - at - 1)), us, .005 + 1e-3 * us)
          << line;
      ++sums;
      at = end;
    }
  }
  EXPECT_GT(sums, 80);
  // And it is the launch's, whatever bounds its work.
  GpuFacts gpu = known_gpus().front();
  for (const double slower : {1.0, .02}) {
    gpu.flops_per_s *= slower;
    for (const bool overlaps : {true, false}) {
      gpu.overlaps = overlaps;
      for (const ExpectedKernel& k :
           expected_step(shape_of("Llama-2-7B"), kBf16, 64, 512, gpu).kernels)
        EXPECT_NEAR(Calculator::value_of(arithmetic_of(k, gpu)), k.in_graph_us,
                    5e-3 * k.in_graph_us)
            << k.what << ", by " << k.bound;
    }
  }
}

// A step is what its lines say, and for the rest what the first step's say.
TEST(ExpectedBefore, LinesAddUpToTheSteps) {
  struct Line {
    std::string what;
    double before = 0, after = 0;
  };
  std::vector<std::pair<std::string, std::vector<Line>>> steps;
  const std::string text = before_and_after_tables();
  for (const std::string& line : lines_of(text.substr(text.find("| launches |")))) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, '|');) cells.push_back(cell);
    if (line.starts_with("| **"))
      steps.emplace_back(cells[1].substr(3, cells[1].size() - 6), std::vector<Line>());
    else if (!steps.empty())
      steps.back().second.push_back({cells[1], std::stod(cells[1]) * std::stod(cells[3]),
                                     std::stod(cells[1]) * std::stod(cells[5])});
  }
  ASSERT_EQ(steps.size(), 8u);
  steps.pop_back();  // attention alone
  const std::vector<Line> first = steps.front().second;
  for (const auto& [name, lines] : steps) {
    double sum[2] = {};
    const auto add = [&](const Line& l) { sum[0] += l.before, sum[1] += l.after; };
    std::map<std::string, size_t> said;  // by a launch's name
    const auto name_of = [](const Line& l) { return l.what.substr(l.what.find(' ', 1)); };
    for (const Line& l : lines) add(l), ++said[name_of(l)];
    for (const Line& l : first)  // of two of a name the first differs
      if (size_t& n = said[name_of(l)]; n > 0)
        --n;
      else
        add(l);
    EXPECT_THAT(text, HasSubstr(fmt::format("| {} |", name)));
    std::istringstream row(text.substr(text.find(fmt::format("| {} |", name))));
    std::string cell;
    for (int i = 0; i < 3; ++i) std::getline(row, cell, '|');  // name, goal
    for (const double us : sum) {
      std::getline(row, cell, '|');
      EXPECT_NEAR(std::stod(cell), us / 1e3, .0065) << name;
    }
  }
}

TEST(ExpectedBefore, TheDocumentHasTheTables) {
  std::ifstream file(EVALRUN_SOURCE_DIR "/docs/performance.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const std::string& line : lines_of(before_and_after_tables()))
    if (!line.empty()) {
      EXPECT_THAT(text.str(), HasSubstr('\n' + line)) << "gpu_report --expected prints it";
    }
}

}  // namespace
}  // namespace evalrun::engine::gpu_report
