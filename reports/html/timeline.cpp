#include "reports/html/timeline.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/utf8.h"

namespace evalrun::reports {

using results::Row;

namespace {

// Not in the middle of a character.
std::string cut(std::string text) {
  if (text.size() <= kTimelineText) return text;
  text.resize(kTimelineText);
  text.resize(text.size() - base::utf8_incomplete_tail(text));
  return text + " ...";
}

std::string first_turn(const std::string& turns) {
  const nlohmann::json list = nlohmann::json::parse(turns, nullptr, false);
  return list.is_array() && !list.empty() && list[0].is_string() ? list[0].get<std::string>() : "";
}

void add_turns(const results::ResultStore& store, Timeline& t) {
  std::vector<int64_t> turns;
  store.query("SELECT id, n_steps, text FROM turn WHERE generation_id = ? ORDER BY idx",
              {t.generation}, [&](const Row& r) {
                if (turns.empty()) t.answer = cut(r.text(2));
                turns.push_back(r.integer(0));
                t.n_steps += r.integer(1);
                return true;
              });
  for (size_t i = 0; i < turns.size(); ++i)
    for (const results::StepRecord& s :
         store.steps(turns[i], kTimelineSteps - static_cast<int64_t>(t.steps.size())))
      t.steps.push_back({static_cast<int>(i), s});
}

}  // namespace

std::vector<Timeline> load_timelines(const results::ResultStore& store, int64_t run_id) {
  std::vector<std::pair<int64_t, std::string>> arms;
  store.query("SELECT id, label FROM arm WHERE run_id = ? AND role <> 'aa' ORDER BY id", {run_id},
              [&](const Row& r) {
                arms.emplace_back(r.integer(0), r.text(1));
                return true;
              });
  std::vector<Timeline> timelines;
  for (const auto& [arm, label] : arms) {
    Timeline t;
    t.arm = label;
    // The unique index on (arm_id, prompt_id, repeat, sample) gives this order, so only the first
    // rows are read; the prompt is looked up afterwards.
    store.query(
        "SELECT g.id, p.task, p.name, p.turns FROM (SELECT id, prompt_id FROM generation WHERE "
        "arm_id = ? AND status = 'ok' AND fault = '' ORDER BY prompt_id, repeat, sample LIMIT 1) g "
        "JOIN prompt p ON p.id = g.prompt_id",
        {arm}, [&](const Row& r) {
          t.generation = r.integer(0);
          t.task = r.text(1);
          t.prompt = r.text(2);
          t.question = cut(first_turn(r.text(3)));
          return false;
        });
    if (t.generation == 0) continue;
    add_turns(store, t);
    timelines.push_back(std::move(t));
  }
  return timelines;
}

}  // namespace evalrun::reports
