// Joined drafts: the trees of several drafters become one, and the nodes of it that pay are
// verified. A look-up is free and right where text repeats; a trained drafter costs forwards and is
// right elsewhere.
//
// A node is a path of tokens below the root, so what two parts draft alike is one node. The
// acceptance of a node, given that its parent is accepted, is counted for each part by draft class,
// depth and rank (methods/draft_choice.h). It starts from Drafter::expected(). Every draft is held
// against the text that comes, whatever of it was verified. Where parts agree, the largest of their
// estimates counts. That is careful: agreement makes a node likelier. Of the joined tree those
// nodes are verified that give the most tokens for a plain step's time.
//
// Parts that cost nothing draft first, the others in the order in which they are given. What costs
// forwards (Drafter::group()) drafts where the tokens that it brings beyond the drafts before it
// are worth the forwards, by what it brought so far. Where it does not pay it is tried after 1, 2,
// 4, ... 128 tokens. A look-up whose question costs enough to show is asked as seldom as
// methods/idle_backoff.h says. JoinMode::kFirst: a part drafts only where no first token of the
// parts before it is as sure as `enough`. All decisions follow from the text and the table of row
// costs, none from a clock.
//
// Loss. An account (methods/loss_account.h) bounds what drafting by forwards may lose against plain
// decoding: at most 3 % of an answer of 64 tokens in these prices, less of longer ones, but for the
// first draft of a part in an answer. Look-ups go on: their estimates bound what they lose.
//
// JoinMode::kBandit: one part drafts at a time, that which gave the most tokens for its cost lately
// (methods/draft_bandit.h). Nothing is merged. The account holds here, too.
//
// Sampling. Parts may draw their drafts, each by a rule of its own. None is rejected by its
// probability here: q_of() is empty for every node, so the verifier samples and matches at every
// node (methods/verifier.h). Why this is lossless whatever the parts do: the token after a text is
//     argument of the target's own draw, x = draw(p(. | text), u(position)),
// where u is the number that belongs to this position of the answer (base::KeyedChance), for plain
// decoding and for this alike. The verifier emits x at each node that it visits. It goes on to a
// child whose token is x, and ends the step where there is none. So the tree decides how many such
// draws one forward serves and never what a draw is. By induction over positions the answer is
// plain decoding's, token by token for the same seed. This holds even for drafts that were drawn by
// the target's own noise (verify=gumbel), which are not independent of x. Rejection in a set of
// siblings that two parts have filled would need their joint law; it gives nothing here that
// matching lacks but a somewhat larger acceptance of drawn drafts.
#pragma once
#include <memory>
#include <vector>

#include "engine/cost/row_cost.h"
#include "methods/method.h"

namespace evalrun::methods {

enum class JoinMode {
  kMerge,   // every part that pays drafts
  kFirst,   // a part drafts only where those before it are not sure
  kBandit,  // one part drafts at a time
};

struct JoinOptions {
  JoinMode mode = JoinMode::kMerge;
  double enough = 0.6;  // acceptance of a first token that is sure; kFirst only
};

// Drafters of one target, two at least. usage_error for parts that read different residual streams.
std::unique_ptr<Drafter> make_joined(std::vector<std::unique_ptr<Drafter>> parts,
                                     const JoinOptions& options, const engine::RowCostTable* costs);

}  // namespace evalrun::methods
