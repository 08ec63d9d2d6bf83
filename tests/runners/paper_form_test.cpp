// The built-in forms: that they fit the suites they name, and what a broken file is told.
#include <gmock/gmock.h>

#include <set>

#include "engine/base/error.h"
#include "methods/registration.h"
#include "reports/claims/published_vs_measured.h"
#include "reports/papers/cells.h"
#include "reports/papers/form.h"
#include "runners/plan/suite.h"

namespace evalrun::reports {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const base::Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

// Labels of the arms, and names of the data sets, that a form's suites measure.
struct Measured {
  std::vector<std::string> arms = {"ar"};
  std::vector<PublishedData> data;
};
Measured measured_by(const PaperForm& form) {
  Measured out;
  for (const std::string& name : form.suites) {
    runners::Suite suite = runners::load_suite(name);
    runners::complete_suite(suite, name);
    EXPECT_EQ(form.decoding, suite.sampling.temperature == 0 ? "greedy" : "sampled") << form.name();
    for (const auto* list : {&suite.methods, &suite.optional_methods})
      for (const std::string& method : *list)
        out.arms.push_back(methods::parse_method(method).label());
    for (const runners::TaskSpec& task : suite.tasks) out.data.push_back(published_data(task.task));
  }
  return out;
}

TEST(PaperForms, FitTheirSuites) {
  std::set<std::string> names;
  for (const PaperForm& form : paper_forms()) {
    SCOPED_TRACE(form.name());
    EXPECT_TRUE(names.insert(form.name()).second) << "twice";
    const Measured measured = measured_by(form);
    for (const FormMethod& method : form.methods) {
      EXPECT_FALSE(method.arms.empty()) << method.label << ": no suite can fill this row";
      for (const std::string& pattern : method.arms) {
        if (pattern.find_first_of("*+") == std::string::npos) {
          EXPECT_TRUE(names_arm(pattern, methods::parse_method(pattern).label()))
              << pattern << " is written " << methods::parse_method(pattern).label();
        }
        EXPECT_TRUE(std::any_of(measured.arms.begin(), measured.arms.end(),
                                [&](const std::string& arm) { return names_arm(pattern, arm); }))
            << pattern << ": no suite of the form measures it";
      }
    }
    if (!form.control.empty()) {
      EXPECT_THAT(measured.arms, Contains(form.control));
    }
    const auto has = [&](const FormData& data) {
      return std::any_of(measured.data.begin(), measured.data.end(), [&](const PublishedData& d) {
        return d.dataset == data.dataset &&
               (d.part.empty() || data.category.empty() || d.part == data.category);
      });
    };
    for (const size_t d : form.rows) EXPECT_TRUE(has(form.data[d])) << form.data[d].label;
    if (!form.methods_as_columns()) {
      for (const FormColumn& c : form.columns) EXPECT_TRUE(has(form.data[c.at]));
    }
  }
  EXPECT_GE(names.size(), 20u);
}

// What a table says of a parameter is said of adapters that differ in nothing else: every arm of a
// form of equal budgets names an ablation, and where the parameter is not the tree, one tree.
TEST(PaperForms, AblationsNameAdaptersOfOneTraining) {
  size_t forms = 0;
  for (const PaperForm& form : paper_forms()) {
    if (!form.equal_budgets) continue;
    ++forms;
    for (const FormMethod& method : form.methods)
      for (const std::string& pattern : method.arms)
        EXPECT_THAT(pattern, HasSubstr("adapter=" + form.paper + "-"))
            << form.name() << ": the adapter that is shipped has a training of its own";
  }
  EXPECT_EQ(forms, 8u);  // BiTA's Tables 3, 8 and Figures 8, 9, Falcon's 4, 5, SPACE's Figures 4, 6
  for (const char* name : {"bita:table-3", "bita:table-8", "bita:figure-8", "bita:figure-9"})
    for (const FormMethod& method : find_paper_forms(name)[0]->methods)
      for (const std::string& pattern : method.arms)
        EXPECT_THAT(pattern, HasSubstr(",tree=efficient:5,groups=all")) << name;
}

TEST(PaperForms, PatternsNameArms) {
  EXPECT_TRUE(names_arm("space:k=5", "space:k=5"));
  EXPECT_FALSE(names_arm("space", "space:k=5"));
  EXPECT_FALSE(names_arm("space:k=5", "space"));
  EXPECT_FALSE(names_arm("space:k=5", "bita:k=5"));
  EXPECT_TRUE(names_arm("space:k=*", "space")) << "the default is a value";
  EXPECT_FALSE(names_arm("space:k=+", "space"));
  EXPECT_TRUE(names_arm("space:k=+", "space:k=12"));
  EXPECT_FALSE(names_arm("space:k=*", "space:adapter=x,k=5"));
  EXPECT_TRUE(names_arm("space:k=5", "space:any_target=true,k=5"));
  EXPECT_TRUE(names_arm("bita:groups=all,tree=full:2", "bita:tree=full:2,groups=all"));
}

TEST(PaperForms, AreFoundByName) {
  EXPECT_THAT(find_paper_forms("falcon"), SizeIs(5));
  ASSERT_THAT(find_paper_forms("space:table-5"), SizeIs(1));
  EXPECT_EQ(find_paper_forms("space:table-5")[0]->decoding, "sampled");
  EXPECT_THAT(message_of([] { find_paper_forms("eagle"); }),
              HasSubstr("space, bita, falcon, self_draft"));
  EXPECT_THAT(message_of([] { find_paper_forms("falcon:table-9"); }),
              HasSubstr("table-1, table-2, table-3, table-4, table-5"));
  EXPECT_THAT(message_of([] { find_paper_forms(""); }), HasSubstr("no tables of a paper ''"));
}

constexpr const char* kForm = R"({"paper": "p", "title": "P",
  "metrics": {"s": {"label": "S", "measured": "speedup", "published": "speedup"}},
  "data": {"g": {"label": "G", "dataset": "gsm8k"}},
  "tables": [{"table": "t", "place": "Table 1", "caption": "c", "suites": [], "decoding": "greedy",
              "methods": [{"label": "m", "arms": ["pld"], "published": "pld"}],
              "columns": [{"data": "g", "metrics": ["s"]}]}]})";

TEST(PaperForms, BrokenFilesAreRefusedByField) {
  EXPECT_THAT(parse_paper_forms(kForm, "p.json"), SizeIs(1));
  for (const auto& [from, to, named] : std::vector<std::array<std::string, 3>>{
           {"\"s\"]", "\"x\"]", "tables[0].columns[0]"},
           {"\"data\": \"g\"", "\"data\": \"h\"", "'h', which is not in 'data'"},
           {"\"measured\": \"speedup\"", "\"measured\": \"sped\"", "metrics.s"},
           {"\"greedy\"", "\"fast\"", "decoding"},
           {"\"measured\": \"speedup\"", "\"measured\": \"win\"", "control"},
           {"\"greedy\",", "\"greedy\", \"equal_budgets\": 1,", "equal_budgets"},
           {"\"caption\"", "\"heading\"", "caption"},
           {"\"label\": \"m\"", "\"label\": 3", "methods[0]"},
           {"\"paper\"", "\"papers\"", "paper"}}) {
    std::string broken = kForm;
    ASSERT_NE(broken.find(from), std::string::npos) << from;
    broken.replace(broken.find(from), from.size(), to);
    const std::string message = message_of([&] { parse_paper_forms(broken, "p.json"); });
    EXPECT_THAT(message, HasSubstr("p.json")) << to;
    EXPECT_THAT(message, HasSubstr(named)) << to;
  }
}

}  // namespace
}  // namespace evalrun::reports
