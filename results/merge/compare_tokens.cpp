#include "results/merge/compare_tokens.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "engine/base/error.h"
#include "results/attached_store.h"
#include "results/read_rows.h"

namespace evalrun::results {
namespace {

// Which arms and prompts of the two are the same; gone with this.
class SameRows {
 public:
  explicit SameRows(ResultStore& store) : store_(store) {}
  ~SameRows() {
    try {
      for (const char* table : {"same_arm", "same_prompt"})
        store_.execute(fmt::format("DROP TABLE IF EXISTS temp.{}", table));
    } catch (const std::exception&) {  // they end with the connection
    }
  }
  SameRows(const SameRows&) = delete;
  SameRows& operator=(const SameRows&) = delete;

 private:
  ResultStore& store_;
};

// By Compared: what is compared, of generation {0} of database {1}.
constexpr std::array<const char*, kComparedKinds> kValues = {
    "{0}.tokens_hash",
    "{0}.status || iif({0}.fault = '', '', ', fault ' || {0}.fault)",
    "{0}.seed",
    "{0}.steps_hash",
    "(SELECT group_concat(printf('turn %d: %d prompt tokens, %d tokens, %d steps, %d drafted, "
    "depth "
    "%d, %d accepted, %d emitted, %d forwards, %d rows, %d undrafted, %s', idx, n_prompt_tokens, "
    "n_tokens, n_steps, drafted, drafted_depth, accepted, emitted, target_forwards, rows, "
    "undrafted, "
    "stop), '; ') FROM (SELECT * FROM {1}.turn WHERE generation_id = {0}.id ORDER BY idx))",
    "(SELECT group_concat(printf('%s %s: %s %s%s', evaluator, version, coalesce(value, 'none'), "
    "status, iif(suspicious, ', suspicious', '')), '; ') FROM (SELECT * FROM {1}.score WHERE "
    "generation_id = {0}.id ORDER BY evaluator, version))",
};

std::string cell_text(const Row& row) {
  return fmt::format("{}, {}, repeat {}, sample {}", row.text(0), row.text(1), row.integer(2),
                     row.integer(3));
}

// Where the tokens of two generations part, as either side has it.
void name_token(const ResultStore& store, int64_t id_a, int64_t id_b, TokenDifference& difference) {
  const auto tokens = [&](const char* database, int64_t id) {
    return all(
        store,
        fmt::format("SELECT tokens FROM {}.turn WHERE generation_id = ? ORDER BY idx", database),
        {id}, [](const Row& row) {
          const std::string bytes = row.blob(0);
          std::vector<int32_t> ids(bytes.size() / sizeof(int32_t));
          if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), ids.size() * sizeof(int32_t));
          return ids;
        });
  };
  const auto x = tokens("main", id_a), y = tokens("other", id_b);
  for (size_t t = 0; t < std::max(x.size(), y.size()); ++t) {
    const std::vector<int32_t> none, &p = t < x.size() ? x[t] : none,
                                     &q = t < y.size() ? y[t] : none;
    const auto [i, j] = std::mismatch(p.begin(), p.end(), q.begin(), q.end());
    if (i == p.end() && j == q.end()) continue;
    const auto at = [&](const auto& where, const std::vector<int32_t>& ids) {
      return fmt::format("turn {}, token {}: {}", t, where - ids.begin(),
                         where == ids.end() ? std::string("the end") : std::to_string(*where));
    };
    difference.a = at(i, p), difference.b = at(j, q);
    return;
  }
}

}  // namespace

const char* to_string(Compared what) {
  constexpr const char* names[] = {"tokens", "statuses", "seeds", "steps", "counters", "scores"};
  static_assert(std::size(names) == kComparedKinds);
  return names[static_cast<size_t>(what)];
}

bool TokenComparison::equal() const {
  return compared > 0 && only_a == 0 && only_b == 0 &&
         std::all_of(std::begin(differing), std::end(differing), [](int64_t n) { return n == 0; });
}

TokenComparison compare_tokens(ResultStore& a, int64_t run_a, const ResultStore& b, int64_t run_b) {
  const AttachedStore attached(a, b.path(), "other");
  const SameRows same(a);
  a.execute("CREATE TEMP TABLE same_arm (a INTEGER PRIMARY KEY, b INTEGER UNIQUE)");
  a.execute(
      "INSERT OR IGNORE INTO temp.same_arm SELECT x.id, y.id FROM main.arm x JOIN other.arm y ON "
      "y.label = x.label WHERE x.run_id = ? AND y.run_id = ? ORDER BY x.id, y.id",
      {run_a, run_b});
  a.execute("CREATE TEMP TABLE same_prompt (a INTEGER PRIMARY KEY, b INTEGER UNIQUE)");
  a.execute(
      "INSERT INTO temp.same_prompt SELECT x.id, y.id FROM main.prompt x JOIN other.prompt y ON "
      "y.key = x.key WHERE x.run_id = ? AND y.run_id = ?",
      {run_a, run_b});
  const std::string place = "r.label, p.name, g.repeat, g.sample";
  TokenComparison result;
  // Generations that one of the runs lacks.
  const auto missing = [&](const char* here, const char* there, const char* to, const char* from,
                           int64_t run, int64_t& count, std::string& first) {
    a.query(
        fmt::format("SELECT {0} FROM {1}.generation g JOIN {1}.arm r ON r.id = g.arm_id JOIN "
                    "{1}.prompt p ON p.id = g.prompt_id LEFT JOIN temp.same_arm x ON x.{3} = "
                    "g.arm_id LEFT JOIN temp.same_prompt y ON y.{3} = g.prompt_id LEFT JOIN "
                    "{2}.generation h ON h.arm_id = x.{4} AND h.prompt_id = y.{4} AND h.repeat = "
                    "g.repeat AND h.sample = g.sample WHERE g.run_id = ? AND h.id IS NULL ORDER "
                    "BY g.id",
                    place, here, there, from, to),
        {run}, [&](const Row& row) {
          if (count++ == 0) first = cell_text(row);
          return true;
        });
  };
  missing("main", "other", "b", "a", run_a, result.only_a, result.first_only_a);
  missing("other", "main", "a", "b", run_b, result.only_b, result.first_only_b);
  std::string columns;
  for (const char* value : kValues)
    columns += fmt::format(", {}, {}", fmt::format(fmt::runtime(value), "g", "main"),
                           fmt::format(fmt::runtime(value), "h", "other"));
  a.query(fmt::format(
              "SELECT {}, g.id, h.id{} FROM main.generation g JOIN temp.same_arm x ON x.a = "
              "g.arm_id JOIN temp.same_prompt y ON y.a = g.prompt_id JOIN other.generation h ON "
              "h.arm_id = x.b AND h.prompt_id = y.b AND h.repeat = g.repeat AND h.sample = "
              "g.sample JOIN main.arm r ON r.id = g.arm_id JOIN main.prompt p ON p.id = "
              "g.prompt_id WHERE g.run_id = ? ORDER BY g.id",
              place, columns),
          {run_a}, [&](const Row& row) {
            ++result.compared;
            for (int kind = 0; kind < kComparedKinds; ++kind) {
              const int column = 6 + 2 * kind;
              if (row.view(column) == row.view(column + 1)) continue;
              ++result.differing[kind];
              if (result.first.size() >= TokenComparison::kNamed) continue;
              result.first.push_back({.arm = row.text(0),
                                      .prompt = row.text(1),
                                      .repeat = row.integer(2),
                                      .sample = row.integer(3),
                                      .what = static_cast<Compared>(kind),
                                      .a = row.text(column),
                                      .b = row.text(column + 1)});
              if (result.first.back().what == Compared::kTokens)
                name_token(a, row.integer(4), row.integer(5), result.first.back());
            }
            return true;
          });
  return result;
}

}  // namespace evalrun::results
