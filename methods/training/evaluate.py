"""Held-out acceptance by simulated decoding, and the static tree that an adapter carries.

`ranks[b, i]` says at which rank a drafter that starts at base b puts the true token of draft
position i, given that the earlier ones are right. Decoding is then a walk: at a base some tokens
are accepted, and the next base comes after them and the bonus token. Averages over all bases would
flatter: after a rejection the next position is harder than average.
"""
import collections

WIDEST = 32  # ranks from here on are in no tree
ROWS = (8, 16, 32, 64)  # sizes of trees, the root included
N_PATHS = 64


def walk(accepted):
    """Bases visited in one sequence, from the accepted draft tokens at each base."""
    base, visited = 0, []
    while base < len(accepted):
        visited.append(base)
        base += accepted[base] + 1
    return visited


def tau(depths):
    """Tokens per target forward, over sequences of accepted depths [[int]]; bonus included."""
    tokens = steps = 0
    for accepted in depths:
        tokens += len(accepted)
        steps += len(walk(accepted))
    return tokens / steps if steps else 0.0


def two_calls_tau(depths):
    """The same where a draft costs a forward of its own, which gives one token too: PaSS."""
    tokens = forwards = 0
    for accepted in depths:
        base = 0
        while base < len(accepted):
            left = len(accepted) - base
            tokens += min(accepted[base] + 2, left)
            forwards += min(2, left)
            base += accepted[base] + 2
    return tokens / forwards if forwards else 0.0


def chain_depths(ranks):
    """Accepted depth of a chain of top-1 tokens at every base."""
    return (ranks == 0).long().cumprod(1).sum(1).tolist()


def paths_of(ranks):
    """Tuple of ranks at every base, cut at the first rank that no tree holds."""
    rows = []
    for row in ranks.tolist():
        path = []
        for rank in row:
            if rank >= WIDEST:
                break
            path.append(rank)
        rows.append(tuple(path))
    return rows


def tree_depths(paths, tree):
    """Accepted depth at every base with a static tree (a set of paths, closed under prefixes)."""
    depths = []
    for path in paths:
        depth = 0
        while depth < len(path) and path[:depth + 1] in tree:
            depth += 1
        depths.append(depth)
    return depths


def best_paths(sequences, n, visited=None):
    """[(path, share)]: the n paths that are accepted most often, every prefix of the list a tree.

    sequences: paths at every base of each sequence; visited: which bases count (default: all).
    A path is never accepted more often than its prefix, so sorting by count is the greedy choice.
    """
    counts, bases = collections.Counter(), 0
    for i, paths in enumerate(sequences):
        for base in visited[i] if visited is not None else range(len(paths)):
            bases += 1
            for depth in range(1, len(paths[base]) + 1):
                counts[paths[base][:depth]] += 1
    order = sorted(counts, key=lambda path: (-counts[path], len(path), path))[:n]
    return [(path, counts[path] / max(bases, 1)) for path in order]


def chain_paths(sequences, depth):
    """[(path, share)] of the chain of first choices, counted at the bases that decoding with it
    visits: for methods whose draft is no tree."""
    chain = [(0,) * d for d in range(1, depth + 1)]
    visited = [walk(tree_depths(paths, set(chain))) for paths in sequences]
    bases = sum(len(each) for each in visited)
    return [(path, sum(paths[base][:len(path)] == path
                       for paths, each in zip(sequences, visited) for base in each) / max(bases, 1))
            for path in chain]


def find_tree(sequences, rows, rounds=3):
    """Paths for a tree of `rows` rows, best first, counted at the bases that decoding with it
    visits."""
    visited = None
    for _ in range(rounds):
        chosen = best_paths(sequences, N_PATHS, visited)
        tree = {path for path, _ in chosen[:rows - 1]}
        visited = [walk(tree_depths(paths, tree)) for paths in sequences]
    return best_paths(sequences, N_PATHS, visited)


def name_of(path):
    """"012", or "0.12.3" when a rank has two digits; "12." for a lone one."""
    if max(path) <= 9:
        return "".join(map(str, path))
    return ".".join(map(str, path)) + ("." if len(path) == 1 else "")  # "12." is no "1", "2"


def position_acceptance(ranks_list):
    """Top-1 share of each draft position among the visited bases where all earlier ones were
    right."""
    right, asked = collections.Counter(), collections.Counter()
    depth = ranks_list[0].shape[1] if ranks_list else 0
    for ranks in ranks_list:
        accepted = chain_depths(ranks)
        for base in walk(accepted):
            for i in range(min(depth, len(accepted) - base)):
                asked[i] += 1
                if accepted[base] <= i:
                    break
                right[i] += 1
    return [round(right[i] / asked[i], 4) if asked[i] else 0.0 for i in range(depth)]


def odd(questions):
    """Which of them are every second one, in the order they come: trees are found on the others and
    scored on these. A question asked through two templates counts once."""
    number = {}
    for question in questions:
        number.setdefault(question, len(number))
    return [number[question] % 2 == 1 for question in questions]


def score(ranks_list, questions=None, chain_only=False):
    """({"position", "chain_tau", "tree_tau"}, tree) from the ranks of all held-out sequences.

    questions: what each of them answers (default: each another). Trees are found on the even ones
    and scored on the odd ones. chain_only: the tree is the chain of first choices.
    """
    questions = questions or range(len(ranks_list))
    questions = [q for q, ranks in zip(questions, ranks_list) if len(ranks)]
    ranks_list = [ranks for ranks in ranks_list if len(ranks)]
    paths = [paths_of(ranks) for ranks in ranks_list]
    scored = odd(questions)
    finding = [path for path, yes in zip(paths, scored) if not yes]
    scoring = [path for path, yes in zip(paths, scored) if yes] or paths
    result = {"position": position_acceptance(ranks_list),
              "chain_tau": round(tau([chain_depths(r) for r in ranks_list]), 4), "tree_tau": {}}
    for rows in ROWS:
        tree = {path for path, _ in find_tree(finding, rows)[:rows - 1]}
        result["tree_tau"][str(rows)] = round(tau([tree_depths(p, tree) for p in scoring]), 4)
    stored = chain_paths(finding, ranks_list[0].shape[1]) if chain_only and ranks_list else \
        find_tree(finding, 32)
    tree = {"paths": [name_of(path) for path, _ in stored],
            "gain": [round(share, 6) for _, share in stored]}
    result["held_out_prompts"] = len(ranks_list)
    result["held_out_tokens"] = sum(len(r) for r in ranks_list)
    return result, tree


def evaluate(module, capture, sequences, kinds=None):
    """score() of a module; kinds = {(folder, line): source} adds the chain and 32-row tree by kind
    of prompt."""
    ranks_list = module.ranks(capture, sequences)
    questions = [capture.question(s) for s in sequences]
    result, tree = score(ranks_list, questions, getattr(module, "chain_only", False))
    if kinds:
        names = [kinds.get((s.folder, s.line), "unknown") for s in sequences]
        result["by_source"] = by_source(ranks_list, names, questions)
    return result, tree


def by_source(ranks_list, names, questions=None, fewest=4):
    """{source: {"chain_tau", "tree32_tau", "prompts"}}; halves as score() has them."""
    questions = questions or range(len(ranks_list))
    kept = [(r, name) for r, name in zip(ranks_list, names) if len(r)]
    scored = odd([q for q, r in zip(questions, ranks_list) if len(r)])
    paths = [paths_of(r) for r, _ in kept]
    finding = [path for path, yes in zip(paths, scored) if not yes]
    tree = {path for path, _ in find_tree(finding, 32)[:31]}
    result = {}
    for name in sorted({name for _, name in kept}):
        mine = [i for i in range(len(kept)) if scored[i] and kept[i][1] == name]
        if len(mine) < fewest:
            continue
        result[name] = {
            "chain_tau": round(tau([chain_depths(kept[i][0]) for i in mine]), 3),
            "tree32_tau": round(tau([tree_depths(paths[i], tree) for i in mine]), 3),
            "prompts": len(mine)}
    return result
