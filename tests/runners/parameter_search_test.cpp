// The search for parameters on made-up speeds: what it measures, and what it finds.
#include "runners/train/parameter_search.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "engine/base/error.h"
#include "engine/base/rng.h"

namespace evalrun::tests {
namespace {

using runners::ParameterSearch;
using runners::RaceTime;
using runners::SearchSpace;
using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::string& method, const std::vector<std::string>& space) {
  try {
    SearchSpace(method, space);
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    return e.what();
  }
  return "accepted";
}

TEST(SearchSpace, ReadsRangesAndLists) {
  const SearchSpace space("pld:match=recent", {"k=2..8..3", "ngram=1..3", "match=first|recent"});
  ASSERT_EQ(space.axes().size(), 3u);
  EXPECT_THAT(space.axes()[0].values, ElementsAre("2", "5", "8"));
  EXPECT_THAT(space.axes()[1].values, ElementsAre("1", "2", "3"));
  EXPECT_THAT(space.axes()[2].values, ElementsAre("first", "recent"));
  EXPECT_EQ(space.size(), 18u);
  EXPECT_EQ(space.method(), "pld:match=recent");
  // k=10 is not in the space, ngram=3 and match=recent are.
  EXPECT_THAT(space.start(), ElementsAre(1, 2, 1));
  EXPECT_EQ(space.spec({0, 2, 0}), "pld:k=2");
  EXPECT_EQ(space.spec({1, 0, 1}), "pld:k=5,match=recent,ngram=1");
}

TEST(SearchSpace, SaysWhatIsWrong) {
  EXPECT_THAT(refusal("pld", {"nonsense"}), HasSubstr("--space: 'nonsense'"));
  EXPECT_THAT(refusal("pld", {"k=2..4", "k=5"}), HasSubstr("'k' is there twice"));
  EXPECT_THAT(refusal("pld", {"k=2..x"}), HasSubstr("'2..x' is no range"));
  EXPECT_THAT(refusal("pld", {"k=0..4"}), HasSubstr("'k'"));
  EXPECT_THAT(refusal("pld", {"lenght=2..4"}), HasSubstr("'lenght'"));
  EXPECT_THAT(refusal("nothing", {"k=2..4"}), HasSubstr("'nothing'"));
  EXPECT_THAT(refusal("pld", {}), HasSubstr("nothing to search"));
}

struct Measured {
  std::vector<std::string> methods;
  int begin, end;
};

// Speeds by the distance from a best point, on prompts of different speed, and a little noise.
class Course {
 public:
  explicit Course(double noise) : noise_(noise) {}
  double speedup(const std::string& spec) const {
    const methods::MethodParams params = methods::parse_method(spec).params;
    const auto off = [&](const char* name, double best) {
      return std::pow(std::stod(params.text(name)) - best, 2);
    };
    return 2 - 0.1 * off("length", 5) - 0.02 * off("branches", 8) - 0.1 * off("gram", 3);
  }
  ParameterSearch search() {
    ParameterSearch search;
    search.measure = [this](const std::vector<std::string>& specs, int begin, int end) {
      measured.push_back({specs, begin, end});
      std::vector<RaceTime> times;
      for (const std::string& spec : specs) {
        RaceTime time;
        for (int prompt = begin; prompt < end; ++prompt) {
          const double plain = 1 + 0.3 * (prompt % 3);
          const double factor = speedup(spec) * (1 + noise_ * (rng_.uniform() - 0.5));
          time.add({100, 100 * plain / factor, 100, 100 * plain});
        }
        times.push_back(time);
      }
      return times;
    };
    return search;
  }
  std::vector<Measured> measured;

 private:
  double noise_;
  base::Rng rng_{5};
};

const std::vector<std::string> kSelfDraft = {"length=3..8", "branches=2..12..2", "gram=2..5"};

TEST(ParameterSearch, FindsTheBestOneWithoutTheGrid) {
  const SearchSpace space("self_draft", kSelfDraft);
  for (const double noise : {0.0, 0.05}) {
    Course course(noise);
    const ParameterSearch::Result found = course.search().run(space);
    EXPECT_EQ(found.method, "self_draft:branches=8,gram=3,length=5");
    EXPECT_EQ(space.spec(found.point), found.method);
    EXPECT_NEAR(found.speedup, 2, 0.1);
    EXPECT_EQ(found.prompts, 16);
    EXPECT_TRUE(found.finished);
    EXPECT_LT(found.tried, 40) << "of " << space.size();
  }
}

TEST(ParameterSearch, HalvesTheFieldAndDoublesThePrompts) {
  Course course(0);
  const SearchSpace space("self_draft", {"length=3..8"});
  std::vector<int> leaders_met;
  ParameterSearch search = course.search();
  search.progress = [&](const ParameterSearch::Step& step) {
    leaders_met.push_back(step.prompts);
    EXPECT_EQ(step.raced, 6);
    EXPECT_EQ(step.method, "self_draft:length=5");
  };
  EXPECT_EQ(search.run(space).tried, 6);
  ASSERT_EQ(course.measured.size(), 3u);
  const size_t sizes[] = {6, 3, 2};
  int begin = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(course.measured[i].methods.size(), sizes[i]);
    EXPECT_EQ(course.measured[i].begin, begin) << "no prompt twice, none left out";
    begin = course.measured[i].end;
  }
  EXPECT_EQ(begin, 16);
  EXPECT_THAT(leaders_met, ElementsAre(4, 8, 16));
}

// What does not go together is left out; the others race.
TEST(ParameterSearch, LeavesImpossiblePointsOut) {
  const SearchSpace space("pld", {"min_ngram=1..4"});  // ngram is 3
  int most = 0;
  ParameterSearch search;
  search.measure = [&](const std::vector<std::string>& specs, int begin, int end) {
    most = std::max(most, static_cast<int>(specs.size()));
    std::vector<RaceTime> times;
    for (const std::string& spec : specs)
      times.push_back({100.0 * (end - begin), spec == "pld:min_ngram=2" ? 50.0 : 90.0, 100, 100});
    return times;
  };
  const ParameterSearch::Result found = search.run(space);
  EXPECT_EQ(most, 3);
  EXPECT_EQ(found.impossible, 1);
  EXPECT_EQ(found.method, "pld:min_ngram=2");
  const SearchSpace none("pld", {"min_ngram=4..6"});
  try {
    search.run(none);
    ADD_FAILURE() << "accepted";
  } catch (const base::Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("no value of min_ngram goes with pld"));
  }
}

TEST(ParameterSearch, EndsWithTheBestSoFar) {
  const SearchSpace space("self_draft", kSelfDraft);
  for (const int most : {0, 1, 4}) {
    Course course(0);
    ParameterSearch search = course.search();
    search.stop = [&] { return static_cast<int>(course.measured.size()) >= most; };
    const ParameterSearch::Result found = search.run(space);
    EXPECT_FALSE(found.finished);
    EXPECT_EQ(course.measured.size(), static_cast<size_t>(most));
    EXPECT_EQ(found.method, most == 0   ? "self_draft"
                            : most == 1 ? "self_draft:length=5"
                                        : "self_draft:branches=8,length=5");
    EXPECT_EQ(found.tried > 0, most > 0);
  }
}

TEST(ParameterSearch, ASpeedNeedsTokensAndTime) {
  EXPECT_EQ(RaceTime{}.speedup(), 0);
  EXPECT_EQ((RaceTime{10, 5, 10, 10}).speedup(), 2);
  EXPECT_EQ((RaceTime{0, 5, 10, 10}).speedup(), 0);
}

}  // namespace
}  // namespace evalrun::tests
