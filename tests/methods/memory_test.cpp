// What grows with texts stays below what it states: Drafter::add_kept(), after 2 * 10^5 tokens.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "methods/lookup/prefix_trie.h"
#include "tests/bench/made_up_text.h"
#include "tests/methods/support/counted_new.h"
#include "tests/methods/support/draft_walk.h"

namespace evalrun::tests {
namespace {

using methods::PrefixTrie;
using testing::IsSupersetOf;

constexpr int kVocab = kMadeUpVocab;
constexpr size_t kPrompt = 64, kAnswer = 1000, kTurn = kPrompt + kAnswer;
constexpr size_t kHistory = 200'000;
// Buffers of one draft and rounding of the allocator, which nothing grows.
constexpr int64_t kOfDrafts = 256 << 10;

const Tokens& history_text() {
  static const Tokens text = made_up_text(kHistory + 2 * kTurn, 7);
  return text;
}

// Every method of the registry that drafts without forwards and needs no file: as it is, and with
// all that it can carry from answer to answer. Capacities small enough to be reached.
std::vector<std::string> growing_specs() {
  std::vector<std::string> specs;
  const auto drafts_from_text = [](const std::string& spec) {
    const methods::MethodSpec method = methods::parse_method(spec);
    if (!method.info->drafter && method.info->alone.empty()) return false;
    if (method.info->takes_draft_model || !method.info->needs.starts_with("nothing")) return false;
    if (method.info->needs_answer || method.info->lossless == methods::Lossless::kNone ||
        method.info->name == "ar" || method.info->tuned)
      return false;
    const auto drafter = make_drafter(spec, kVocab);
    return drafter->group() == nullptr;
  };
  for (const auto& [name, info] : methods::method_registry().entries()) {
    if (!drafts_from_text(name)) continue;
    specs.push_back(name);
    for (const methods::ParamInfo& p : info.params)
      if (p.steps_at.steps == methods::StepReproducibility::kCarryState)
        for (const std::string& value : {p.steps_at.value, p.steps_at.other})
          if (!value.empty()) specs.push_back(name + ":" + p.name + "=" + value);
  }
  for (const char* spec :
       {"suffix:capacity=4096,state=warm", "sam:capacity=4096,state=warm",
        "pia:nodes=20000,persist=true", "ngram_mod:entries=65536,state=shared",
        "lookahead:pool_from_prompt=true", "recycling:state=warm,tree=auto",
        "pld:candidates=3,match=frequent", "hybrid:drafts=suffix(state=warm)+recycling(state=warm)",
        "hybrid:drafts=pld+suffix+pia(persist=true),mode=bandit"})
    specs.push_back(spec);
  return specs;
}

class GrowingMemory : public testing::TestWithParam<std::string> {};

TEST_P(GrowingMemory, StaysBelowWhatIsStated) {
  const Tokens& text = history_text();
  make_drafter(GetParam(), kVocab);  // what a first one leaves behind
  const int64_t before = live_bytes();
  const auto drafter = make_drafter(GetParam(), kVocab);
  const int64_t with_drafter = live_bytes();
  DraftWalk walk(*drafter, text, kVocab);
  const int64_t of_walk = live_bytes() - with_drafter;
  const auto holds = [&] { return live_bytes() - before - of_walk; };
  methods::KeptMemory kept;
  drafter->add_kept(kept);
  ASSERT_TRUE(kept.complete) << "no bound is stated";
  EXPECT_EQ(kept.bytes_per_slot, 0) << "there before any text";
  const auto stated = [&](size_t tokens) {
    return static_cast<int64_t>(kept.grown.most(1, static_cast<int>(tokens)));
  };
  int64_t most = 0;
  for (size_t begin = 0; begin + kTurn <= kHistory; begin += kTurn) {
    walk.start(begin, kPrompt, kAnswer);
    // The first answers by steps, the others at once: what is learnt is much the same.
    walk.read(begin + kTurn, begin < 10 * kTurn);
    most = std::max(most, holds());
  }
  RecordProperty("stated", std::to_string(stated(kTurn)));
  RecordProperty("held", std::to_string(most));
  EXPECT_LE(most, stated(kTurn) + kOfDrafts) << "in many conversations";
  // One long conversation.
  walk.start(0, kHistory / 2, kHistory / 2);
  walk.read(kHistory, false);
  EXPECT_LE(holds(), stated(kHistory) + kOfDrafts) << "in one";
  // One that is never come near would bound nothing.
  if (stated(kHistory) > (8 << 20)) {
    EXPECT_GE(8 * holds(), stated(kHistory));
  }
}
INSTANTIATE_TEST_SUITE_P(Registry, GrowingMemory, testing::ValuesIn(growing_specs()),
                         [](const auto& spec) { return test_name(spec.param); });

TEST(GrowingMemory, HasEveryMethodThatKeepsWhatItReads) {
  const std::vector<std::string> specs = growing_specs();
  EXPECT_THAT(specs, IsSupersetOf({"jacobi",
                                   "logitspec",
                                   "lookahead",
                                   "ngram_mod",
                                   "ngram_mod:state=shared",
                                   "ngram_mod:state=warm",
                                   "pia",
                                   "pia:persist=true",
                                   "pld",
                                   "recycling",
                                   "recycling:state=warm",
                                   "sam",
                                   "sam:state=shared",
                                   "sam:state=warm",
                                   "self_draft",
                                   "self_draft:persist=true",
                                   "stand",
                                   "suffix",
                                   "suffix:state=shared",
                                   "suffix:state=warm"}));
}

// Other methods say what they keep, too: no plan has to guess.
TEST(GrowingMemory, IsStatedByEveryMethod) {
  const auto model = small_model(3);
  std::set<std::string> silent;
  int counted = 0;
  for (const Arm& arm : all_arms()) {
    if (arm.name.starts_with("random trees")) continue;
    methods::KeptMemory kept;
    build_arm(arm, model)->add_kept(kept);
    if (!kept.complete) silent.insert(arm.name);
    ++counted;
  }
  EXPECT_THAT(silent, testing::IsEmpty());
  EXPECT_GT(counted, 50);
}

// What a trie says it has is what it has, and what it may have: nodes by their limit, what
// reserve() promised, and something for each id.
TEST(GrowingMemory, OfATrieIsWhatItSays) {
  constexpr int kNodes = 100'000, kLength = 12;
  const Tokens& text = history_text();
  const int64_t before = live_bytes();
  PrefixTrie trie(kVocab, {512, 1024, kNodes});
  size_t most = 0;
  for (size_t begin = 0; begin + kAnswer <= text.size(); begin += kAnswer) {
    trie.reserve(kAnswer * (kLength + 1));
    for (size_t i = begin; i + kLength < begin + kAnswer; ++i)
      trie.insert(text[i], std::span(text).subspan(i + 1, kLength), PrefixTrie::Source::kAnswer);
    trie.end_answer();
    most = std::max(most, trie.allocated_bytes());
  }
  EXPECT_NEAR(static_cast<double>(live_bytes() - before),
              static_cast<double>(trie.allocated_bytes()), 50e3);
  const double stated = PrefixTrie::most_bytes(kVocab, kNodes) +
                        PrefixTrie::kMostBytesPerNode * kAnswer * (kLength + 1);
  EXPECT_LE(static_cast<double>(most), stated);
  EXPECT_GE(static_cast<double>(most), 36.0 * kNodes) << "the limit was not reached";
}

}  // namespace
}  // namespace evalrun::tests
