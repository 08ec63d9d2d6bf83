#include "methods/heads/rank_tree.h"

#include <algorithm>
#include <array>
#include <map>

#include "engine/base/error.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/session.h"

namespace evalrun::methods {
namespace {

struct PublishedTree {
  const char* name;
  // Paths, one digit a level, best first; or path:children for trees published as pictures.
  const char* words;
};

// Medusa's mc_sim_7b_63 and *_stage* (FasterDecoding/Medusa, medusa_choices.py), 63 nodes each in
// order of expected gain. EAGLE-1's static tree, which its repository calls mc_sim_7b_63 too, has
// 25. Falcon's: Figure 6 (the repository's kmask2_8layer_tree_3), Figure 5 with the 20 children of
// the root that Appendix A names, the repository's default without its duplicated path, its four
// levels deep one, and a small one of ours. Token Recycling's: template 2.2.2 of its repository,
// level by level.
constexpr PublishedTree kPublished[] = {
    {"token_recycling",
     ":8 0:8 1:4 2:3 3:2 4:1 5:1 6:1 7:1 00:8 01:3 02:2 03:1 04:1 05:1 06:1 07:1 10:2 11:1 20:1 "
     "30:1 40:1 50:1 000:5 001:2 002:1 003:1 004:1 010:1 020:1 100:1 200:1 300:1 0000:3 0001:1 "
     "0002:1 0010:1 0100:1 1000:1 00000:2 00010:1"},
    {"mc_sim_7b_63",
     "0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 "
     "020 12 003 40 21 004 005 0000 011 006 030 50 13 007 008 009 60 040 14 70 012 200 31 "
     "22 80 050 15 101 021 90 060 0001 16 070 "},
    {"vicuna_7b_stage1",
     "0 00 1 2 01 10 3 02 4 000 03 5 20 04 6 05 11 001 7 30 06 8 9 010 07 08 40 002 12 09 "
     "21 50 100 003 13 020 011 004 60 14 005 22 030 31 006 70 15 101 200 007 80 0000 41 "
     "012 040 90 021 23 16 008 050 32 51 "},
    {"vicuna_7b_stage2",
     "0 00 1 01 000 10 2 02 001 03 3 010 20 4 002 04 11 100 0000 5 003 05 020 30 011 06 6 "
     "07 004 40 12 08 7 030 0001 005 21 006 101 0010 200 50 09 012 8 040 021 13 007 0002 "
     "008 110 0100 60 9 013 0003 102 050 31 0020 70 14 "},
    {"vicuna_7b_stage1_ablation",
     "0 00 1 000 01 10 2 02 001 3 03 010 20 002 04 4 0000 100 11 003 020 05 5 30 011 06 6 "
     "004 12 0001 40 005 07 08 030 0010 101 7 200 006 21 012 50 021 09 0002 040 8 13 007 "
     "0100 110 60 9 008 009 050 0020 102 013 0003 300 31 "},
    {"vicuna_13b_stage1",
     "0 00 1 01 2 10 000 02 3 03 4 20 04 001 05 5 11 010 6 06 002 7 30 8 07 08 100 003 40 "
     "12 9 09 21 020 004 13 011 005 50 030 0000 006 60 14 200 012 31 040 101 22 007 15 70 "
     "008 80 050 009 021 110 013 41 23 16 "},
    {"vicuna_13b_stage2",
     "0 00 1 000 01 10 2 02 001 010 3 03 20 002 0000 04 100 11 4 003 05 020 5 30 011 06 "
     "004 0001 07 005 12 0010 030 101 40 006 08 200 09 6 7 21 50 012 0002 8 040 0100 021 "
     "007 110 13 0020 9 008 050 0003 009 013 102 0011 300 1000 "},
    {"vicuna_33b_stage1",
     "0 1 00 2 01 3 10 4 02 5 03 000 6 04 20 7 11 05 30 8 9 06 07 001 12 40 010 08 09 21 "
     "002 50 13 003 100 14 60 020 31 22 004 70 011 15 41 005 030 90 80 16 006 23 012 32 "
     "040 200 17 101 007 51 24 008 021 "},
    {"vicuna_33b_stage2",
     "0 00 1 01 000 10 2 02 001 03 3 010 20 04 4 002 11 100 05 5 0000 003 30 020 06 011 6 "
     "004 07 7 12 40 8 030 005 0001 08 21 09 101 200 006 50 0010 13 012 040 007 021 9 110 "
     "0002 60 008 0100 70 013 050 14 009 31 102 22 "},
    {"zephyr_stage2",
     "0 00 1 01 2 000 10 02 3 03 4 20 001 04 5 05 010 11 6 002 30 06 7 07 08 003 100 09 "
     "020 12 40 8 9 21 011 004 0000 50 030 13 005 006 60 200 101 012 040 14 31 22 007 70 "
     "021 008 013 050 15 009 110 0001 0010 41 23 "},
    {"eagle",
     "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 "
     "00000 00001 "},
    {"falcon_llama",
     ":20 0:11 1:4 2:4 00:7 01:8 02:1 03:1 10:1 20:1 000:10 010:1 020:1 030:1 100:1 200:1 "
     "0000:10 0001:1 0100:1 0200:1 0300:1 1000:1 2000:1 00000:4 00010:1 01000:1 02000:1 "
     "03000:1 10000:1 20000:1 000000:4 000100:1 010000:1 020000:1 030000:1 100000:1 "
     "200000:1 0000000:3 0001000:1 0100000:1 0200000:1 0300000:1 1000000:1 2000000:1 "},
    {"falcon_vicuna",
     ":20 0:10 1:2 2:2 3:1 00:10 01:2 02:2 10:2 20:1 30:1 000:10 001:2 002:1 010:2 011:1 "
     "020:1 021:1 100:2 200:1 300:1 0000:10 0001:2 0002:1 0010:1 0020:1 0100:1 0200:1 "
     "1000:1 2000:1 3000:1 00000:10 00001:2 00002:1 00010:1 00011:1 00020:1 00100:1 "
     "00200:1 01000:1 02000:1 10000:1 20000:1 000000:7 000001:2 000002:1 000010:1 "
     "000100:1 001000:1 002000:1 010000:1 020000:1 100000:1 200000:1 0000000:12 0000010:1 "
     "0000011:1 0000020:1 0001000:1 0010000:1 0020000:1 0100000:1 0200000:1 1000000:1 "
     "2000000:1 "},
    {"falcon_repo",
     ":20 0:10 1:2 2:2 3:1 00:10 01:2 02:2 03:1 10:2 20:1 30:1 000:10 001:2 002:1 010:2 "
     "011:1 020:1 021:1 030:1 100:2 200:1 300:1 0000:10 0001:2 0002:1 0010:1 0020:1 "
     "0100:1 0200:1 0300:1 1000:1 2000:1 3000:1 00000:9 00001:2 00002:1 00010:1 00011:1 "
     "00020:1 00100:1 00200:1 01000:1 02000:1 03000:1 10000:1 20000:1 30000:1 000000:9 "
     "000001:2 000002:1 000010:1 000100:1 001000:1 002000:1 010000:1 020000:1 030000:1 "
     "100000:1 200000:1 0000000:8 0000001:2 0000002:1 0000010:1 0000011:1 0000020:1 "
     "0000100:1 0001000:1 0010000:1 0020000:1 0100000:1 0200000:1 0300000:1 1000000:1 "
     "2000000:1 "},
    {"falcon_75",
     ":20 0:11 1:4 2:4 00:7 01:10 02:1 03:1 10:1 20:1 000:10 010:1 020:1 030:1 100:1 "
     "200:1 "},
    {"falcon_small", ":4 0:3 1:2 2:1 00:2 01:1 10:1 000:1 010:1 "},
};

// Parts of a published tree: its first levels, with the first of the root's children.
struct PartTree {
  const char* name;
  const char* of;
  int levels;
  int root_children;
};

// falcon_vicuna as counted in Figure 5, where one child of the root is missing. For k = 3 section
// 4.5 gives a height of 6 and no tree: two forwards of the drafter, and what they can fill of
// falcon_vicuna.
constexpr PartTree kParts[] = {{"falcon_vicuna_figure", "falcon_vicuna", 8, 19},
                               {"falcon_height6", "falcon_vicuna", 6, 20}};

using Path = std::vector<int>;

std::string text_of(const Path& path) {
  const bool wide = std::any_of(path.begin(), path.end(), [](int r) { return r > 9; });
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    if (wide && i > 0) text += '.';
    text += std::to_string(path[i]);
  }
  // A single wide rank would read as its digits.
  return wide && path.size() == 1 ? text + '.' : text;
}

[[noreturn]] void fail(const std::string& who, std::string_view text, const std::string& what) {
  throw base::usage_error(fmt::format("{}: tree '{}' {}", who, text, what),
                          "give a published tree (" +
                              fmt::format("{}", fmt::join(tree_names(), ", ")) +
                              "), chain:N, delayed:K:L1:L2, or paths like 0+00+1+01, parents "
                              "before children");
}

bool digits_only(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

int number(const std::string& who, std::string_view whole, std::string_view digits) {
  const auto n = base::parse_number<int>(digits);
  if (!n || *n < 0 || *n > engine::kMaxRows || !digits_only(digits))
    fail(who, whole, fmt::format("has '{}' where a rank or a number belongs", digits));
  return *n;
}

Path parse_path(const std::string& who, std::string_view whole, std::string_view word) {
  Path path;
  if (word.find('.') == std::string_view::npos) {
    if (!digits_only(word)) fail(who, whole, fmt::format("has '{}' where a path belongs", word));
    for (const char c : word) path.push_back(c - '0');
    return path;
  }
  if (word.ends_with('.')) word.remove_suffix(1);
  for (const std::string_view part : base::split(word, '.'))
    path.push_back(number(who, whole, part));
  return path;
}

class TreeBuilder {
 public:
  TreeBuilder(const std::string& who, std::string_view whole) : who_(who), whole_(whole) {}
  void add(const Path& path) {
    const Path front(path.begin(), path.end() - 1);
    const auto parent = node_of_.find(front);
    if (!front.empty() && parent == node_of_.end())
      fail(who_, whole_,
           fmt::format("has path {} without {} before it", text_of(path), text_of(front)));
    if (tree_.size() + 1 >= engine::kMaxRows)
      fail(who_, whole_, fmt::format("has more than {} nodes", engine::kMaxRows - 1));
    if (!node_of_.emplace(path, tree_.size() + 1).second)
      fail(who_, whole_, fmt::format("has path {} twice", text_of(path)));
    tree_.add(front.empty() ? 0 : parent->second, path.back());
  }
  void add_children(Path path, int n) {
    path.push_back(0);
    for (int rank = 0; rank < n; ++rank) {
      path.back() = rank;
      add(path);
    }
  }
  RankTree take() { return std::move(tree_); }

 private:
  const std::string& who_;
  std::string_view whole_;
  RankTree tree_;
  std::map<Path, int> node_of_;
};

// delayed:K:L1:L2, level by level.
RankTree delayed_tree(const std::string& who, std::string_view text) {
  const std::vector<std::string> words = base::split(text, ':');
  if (words.size() != 4) fail(who, text, "is no delayed tree: it has K, L1 and L2");
  const int branches = number(who, text, words[1]), trunk = number(who, text, words[2]);
  const int length = number(who, text, words[3]);
  if (branches < 1 || length < 1) fail(who, text, "is no delayed tree: K and L2 are at least 1");
  TreeBuilder builder(who, text);
  Path path;
  for (int i = 0; i < trunk; ++i) {
    path.push_back(0);
    builder.add(path);
  }
  const size_t fork = path.size();
  for (int i = 0; i < length; ++i) {
    path.push_back(0);
    for (int branch = 0; branch < branches; ++branch) {
      path[fork] = branch;
      builder.add(path);
    }
  }
  return builder.take();
}

RankTree part_of(const RankTree& whole, const PartTree& part) {
  RankTree tree;
  std::vector<int> node_of(static_cast<size_t>(whole.size()) + 1, -1);  // -1 = left out
  node_of[0] = 0;
  for (size_t i = 0; i < whole.rank.size(); ++i) {
    const int parent = node_of[static_cast<size_t>(whole.parent[i])];
    const bool taken = parent > 0 || (parent == 0 && whole.rank[i] < part.root_children);
    if (!taken || whole.level[i] > part.levels) continue;
    tree.add(parent, whole.rank[i]);
    node_of[i + 1] = tree.size();
  }
  return tree;
}

}  // namespace

int RankTree::depth() const {
  return level.empty() ? 0 : *std::max_element(level.begin(), level.end());
}

int RankTree::width() const {
  return rank.empty() ? 0 : *std::max_element(rank.begin(), rank.end()) + 1;
}

void RankTree::add(int parent_node, int node_rank) {
  EVALRUN_CHECK(parent_node >= 0 && parent_node <= size(), "parent {} of {}", parent_node, size());
  parent.push_back(parent_node);
  rank.push_back(node_rank);
  level.push_back(parent_node == 0 ? 1 : level[static_cast<size_t>(parent_node) - 1] + 1);
}

RankTree RankTree::first(int n) const {
  const auto count = static_cast<size_t>(std::clamp(n, 0, size()));
  RankTree t = *this;
  t.parent.resize(count), t.rank.resize(count), t.level.resize(count);
  return t;
}

std::vector<std::string> RankTree::paths() const {
  std::vector<std::string> texts;
  for (int i = 0; i < size(); ++i) {
    Path path;
    for (int node = i + 1; node > 0; node = parent[static_cast<size_t>(node) - 1])
      path.insert(path.begin(), rank[static_cast<size_t>(node) - 1]);
    texts.push_back(text_of(path));
  }
  return texts;
}

std::string RankTree::text() const { return fmt::format("{}", fmt::join(paths(), "+")); }

RankTree rank_tree(const std::string& who, std::span<const std::string> paths) {
  TreeBuilder builder(who, "");
  for (const std::string& path : paths) builder.add(parse_path(who, path, path));
  return builder.take();
}

RankTree parse_rank_tree(const std::string& who, std::string_view text) {
  for (const PartTree& part : kParts)
    if (text == part.name) return part_of(parse_rank_tree(who, part.of), part);
  TreeBuilder builder(who, text);
  for (const PublishedTree& known : kPublished) {
    if (text != known.name) continue;
    for (const std::string_view word : base::split(base::trim(known.words), ' ')) {
      const size_t colon = word.find(':');
      if (colon == std::string_view::npos)
        builder.add(parse_path(who, text, word));
      else
        builder.add_children(colon == 0 ? Path{} : parse_path(who, text, word.substr(0, colon)),
                             number(who, text, word.substr(colon + 1)));
    }
    return builder.take();
  }
  if (text.starts_with("delayed:")) return delayed_tree(who, text);
  if (text.starts_with("chain:")) {
    const int n = number(who, text, text.substr(6));
    if (n < 1 || n >= engine::kMaxRows) fail(who, text, "is no chain");
    Path path;
    for (int i = 0; i < n; ++i) {
      path.push_back(0);
      builder.add(path);
    }
    return builder.take();
  }
  for (const std::string_view word : base::split(text, '+'))
    builder.add(parse_path(who, text, word));
  return builder.take();
}

std::vector<std::string> tree_names() {
  std::vector<std::string> names;
  for (const PublishedTree& known : kPublished) names.emplace_back(known.name);
  for (const PartTree& part : kParts) names.emplace_back(part.name);
  return names;
}

}  // namespace evalrun::methods
