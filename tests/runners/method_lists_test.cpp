// Named lists of methods.
#include "runners/plan/method_lists.h"

#include <gmock/gmock.h>

#include "engine/base/error.h"
#include "methods/registration.h"

namespace evalrun::tests {
namespace {

using runners::expand_method_lists;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Names = std::vector<std::string>;

TEST(MethodLists, HoldMethodsThatParse) {
  for (const runners::MethodList& list : runners::method_lists()) {
    EXPECT_EQ(methods::method_registry().find(list.name), nullptr) << "a method has that name";
    EXPECT_FALSE(list.methods.empty());
    for (const Names* names : {&list.methods, &list.optional})
      for (const std::string& method : *names) EXPECT_NO_THROW(methods::parse_method(method));
    EXPECT_THAT(runners::describe_method_lists(), HasSubstr(list.name + " (" + list.summary));
  }
}

// ar, ar_tuned, pad, oracle.
TEST(MethodLists, AllIsTheRegistryWithoutPlainDecodingAndWhatIsNoMethod) {
  const runners::MethodList& all = *runners::find_method_list("all");
  EXPECT_EQ(all.methods.size() + all.optional.size() + 4,
            methods::method_registry().entries().size());
  EXPECT_THAT(all.methods, Contains("self_draft")) << "a corpus helps, but is not needed";
  EXPECT_THAT(all.methods, Not(Contains("oracle")));
  EXPECT_THAT(all.optional, Contains("medusa"));
}

TEST(MethodLists, ExpandInPlaceAndOnce) {
  Names methods = {"medusa", "fast", "self_draft:adaptive=true,k=2",
                   "pld:match=frequent,candidates=3,adaptive=true"};
  Names optional;
  expand_method_lists(methods, optional);
  EXPECT_THAT(methods, ElementsAre("medusa", "lookahead:adaptive=true,pool_from_prompt=true",
                                   "self_draft:adaptive=true", "self_draft:adaptive=true,k=2",
                                   "pld:match=frequent,candidates=3,adaptive=true"))
      << "what is named beside the list is not there twice";
  EXPECT_THAT(optional, ElementsAre());
  methods = {"all", "medusa"};
  expand_method_lists(methods, optional);
  EXPECT_THAT(methods, Contains("medusa"));
  EXPECT_THAT(optional, Not(Contains("medusa")));
  EXPECT_THAT(optional, Contains("eagle"));
  Names unknown = {"nothing"};
  expand_method_lists(unknown, optional);
  EXPECT_THAT(unknown, ElementsAre("nothing")) << "for parse_method() to refuse";
}

TEST(MethodLists, WhereNothingIsOptional) {
  EXPECT_EQ(runners::expanded_method_lists({"fast"}).size(), 3u);
  EXPECT_THROW(runners::expanded_method_lists({"all"}), base::Error);
}

}  // namespace
}  // namespace evalrun::tests
