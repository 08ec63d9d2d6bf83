#include "runners/measure/runner.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <span>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "results/queries.h"
#include "runners/machine/environment.h"
#include "runners/measure/batch_calls.h"
#include "runners/measure/deferred_scores.h"
#include "runners/measure/endpoint_visit.h"
#include "runners/measure/generation.h"
#include "runners/measure/known_answers.h"
#include "runners/measure/model_scores.h"
#include "runners/measure/replay_paths.h"
#include "runners/measure/run_facts.h"
#include "runners/measure/warmup.h"
#include "runners/plan/estimate.h"

namespace evalrun::runners {
namespace {

uint64_t hash64(const std::string& text) {
  return std::stoull(base::sha256_hex(text).substr(0, 16), nullptr, 16);
}

// The same for every arm, repeat and build: sample k of a prompt always starts from the same seed.
uint64_t generation_seed(uint64_t suite_seed, const results::PromptRecord& prompt, int sample) {
  return base::combine_seeds(
      {suite_seed, hash64(prompt.task + "\n" + prompt.id), static_cast<uint64_t>(sample)});
}

}  // namespace

struct Runner::Impl {
  const RunPlan& plan;
  const Conversation& conversation;
  results::ResultStore& store;
  base::Clock& clock;
  RunnerOptions options;
  ProgressSink silent;

  std::vector<int64_t> arm_ids, prompt_ids;   // rows of the store
  std::vector<results::ArmRecord> arm_bytes;  // grows with what is measured
  std::vector<const Visit*> pending;
  GenerationDecoder decoder;
  std::vector<RunningArm> arms;     // as the plan's; none before start()
  std::vector<int64_t> next_calls;  // GenerationRecord::batch_call, by arm; 0 = the store knows
  ReplayPaths paths;
  KnownAnswers answers;
  std::optional<int64_t> machine_id;  // row of the store; none before start()
  RunOutcome outcome;

  Impl(const RunPlan& p, const Conversation& c, results::ResultStore& s, base::Clock& k,
       RunnerOptions o);

  ProgressSink& progress() { return options.progress != nullptr ? *options.progress : silent; }
  bool stop_requested() const { return options.stop && options.stop(); }
  const PlannedArm& arm(const Visit& v) const { return plan.arms[static_cast<size_t>(v.arm)]; }
  const PlannedPrompt& prompt(const Visit& v) const {
    return plan.prompts[static_cast<size_t>(v.prompt)];
  }

  // Sessions and methods of all arms.
  void start(const SessionOf& session_of);
  // A fact about this machine, and of the run where it is the first one that says so.
  void note(const std::string& name, const std::string& value);
  void warn_of_hopeless_arms();
  void measure_pending();
  // Those that the source gives, for as long as it gives any.
  void measure_from_source(int64_t begin_ns);
  // All that are pending now. False: the run is to end.
  bool measure_visits(int64_t begin_ns);

  // One generation and its row.
  void measure(const Visit& v);
  // The same of a server. False: a stop request cut it short.
  bool measure_server(const Visit& v);
  // The same for pending visits of one block that are decoded together. False: a stop request cut
  // it short.
  bool measure_batch(std::span<const Visit* const> visits);
  // Pending visits from `begin` on that are measured in one go.
  std::span<const Visit* const> together(size_t begin) const;
  void keep(const Visit& v, const results::GenerationRecord& g,
            const std::vector<results::ScoreRecord>& scores);
  base::DeviceFault at_visit(const Visit& v, const base::DeviceFault& fault) const;
  std::string place_of(const Visit& v) const;  // in the run, for errors that end it
  results::GenerationRecord record_of(const Visit& v) const;
  const Answers& path_of(const Visit& v);
  const Answers* known_answers(const Visit& v);
  void learn_answers(const Visit& v);

  StoredPlan stored() const { return {plan, outcome.run_id, arm_ids, prompt_ids}; }
  // `session_of`: null where there are no sessions.
  RunOutcome finish(const SessionOf* session_of);
  void take_scores(const SessionOf* session_of);
};

Runner::Impl::Impl(const RunPlan& p, const Conversation& c, results::ResultStore& s, base::Clock& k,
                   RunnerOptions o)
    : plan(p),
      conversation(c),
      store(s),
      clock(k),
      options(std::move(o)),
      decoder(plan, conversation, clock, options.turns),
      paths(plan, store, arm_ids, prompt_ids),
      answers(plan, store, arm_ids, prompt_ids) {
  outcome.run_id = store.add_run(plan.run);
  outcome.run_key = plan.run.key;
  store.add_plan(outcome.run_id, plan.whole);
  for (const PlannedArm& arm : plan.arms) {
    arm_ids.push_back(arm_row(plan, arm.record, store, outcome.run_id));
    arm_bytes.push_back(arm.record);
  }
  for (const PlannedPrompt& prompt : plan.prompts)
    prompt_ids.push_back(store.add_prompt(outcome.run_id, prompt.record));
  if (plan.shard) {
    std::vector<std::pair<int64_t, int>> numbers;
    for (size_t i = 0; i < prompt_ids.size(); ++i)
      numbers.emplace_back(prompt_ids[i], plan.shard_of[i]);
    store.add_shard(outcome.run_id, *plan.shard, numbers);
  }
  for (const Visit& v : plan.schedule)
    if (!store.has_generation(arm_ids[static_cast<size_t>(v.arm)],
                              prompt_ids[static_cast<size_t>(v.prompt)], v.repeat, v.sample))
      pending.push_back(&v);
  outcome.planned = static_cast<int>(plan.schedule.size());
  outcome.stored_before = outcome.planned - static_cast<int>(pending.size());
}

void Runner::Impl::start(const SessionOf& session_of) {
  machine_id = store.add_machine(outcome.run_id, plan.machine);
  for (const PlannedArm& planned : plan.arms) {
    if (planned.endpoint) {
      arms.push_back({&planned, nullptr, {}});
      continue;
    }
    engine::Session& session = session_of(planned.model);
    EVALRUN_CHECK(session.capacity() >= plan.capacity, "session of {} tokens, {} planned",
                  session.capacity(), plan.capacity);
    EVALRUN_CHECK(session.options().n_sequences >= planned.record.batch,
                  "session of {} sequences, a batch of {} planned", session.options().n_sequences,
                  planned.record.batch);
    arms.push_back({&planned, &session, {}});
  }
  next_calls.resize(arms.size());
  const auto fact = [this](const std::string& name, const std::string& value) {
    note(name, value);
  };
  note_row_cost(*plan.row_cost, fact);
  note_weight_placement(arms, fact);
  connect_endpoints(arms, outcome.run_id, store, clock, options.stop);
  for (RunningArm& arm : arms)
    if (arm.session != nullptr) arm.build();
}

void Runner::Impl::note(const std::string& name, const std::string& value) {
  store.add_environment(outcome.run_id, name, value);
  store.add_machine_fact(machine_id.value(), name, value);
}

// By the largest steps of their methods, where it is known what rows cost.
void Runner::Impl::warn_of_hopeless_arms() {
  for (const RunningArm& running : arms) {
    if (running.session == nullptr) continue;
    const engine::RowCostTable table = plan.row_cost->of_batch(running.batch());
    if (table.empty() || !has_usual_steps(running.planned->record)) continue;
    const std::string why = hopeless_text(running.planned->record.label,
                                          price_of(running.method().largest_step(), table));
    if (!why.empty()) progress().hopeless(why);
  }
}

void Runner::Impl::measure_pending() {
  const int64_t begin = clock.now_ns();
  if (options.source != nullptr)
    measure_from_source(begin);
  else if (measure_visits(begin) && options.turns != nullptr)
    options.turns->next();  // the last visit is done
}

void Runner::Impl::measure_from_source(int64_t begin_ns) {
  const std::vector<const Visit*> all = std::move(pending);
  do {
    if (stop_requested()) {
      outcome.status = RunStatus::kInterrupted;
      return;
    }
    const std::vector<int> prompts = options.source->next();
    if (prompts.empty()) return;
    const std::set<int> now(prompts.begin(), prompts.end());
    pending.clear();
    std::copy_if(all.begin(), all.end(), std::back_inserter(pending),
                 [&](const Visit* v) { return now.count(v->prompt) > 0; });
  } while (measure_visits(begin_ns));
}

bool Runner::Impl::measure_visits(int64_t begin) {
  // Arms of one prompt stay together. A wave of prompts takes too long for that.
  const bool batches = std::any_of(plan.arms.begin(), plan.arms.end(),
                                   [](const PlannedArm& a) { return a.record.batch > 1; });
  int block = -1;
  for (size_t i = 0; i < pending.size();) {
    const std::span<const Visit* const> visits = together(i);
    const Visit& v = *visits.front();
    i += visits.size();
    if ((batches || v.block != block) && stop_requested()) {
      outcome.status = RunStatus::kInterrupted;
      return false;
    }
    if (batches || v.block != block) {
      if (options.max_time_s > 0 &&
          static_cast<double>(clock.now_ns() - begin) * 1e-9 >= options.max_time_s) {
        outcome.status = RunStatus::kOutOfTime;
        return false;
      }
    }
    block = v.block;
    if (options.turns != nullptr && !options.turns->next()) {
      outcome.status = RunStatus::kInterrupted;
      return false;
    }
    const bool single = arm(v).record.batch == 1;
    if (single && !arm(v).endpoint) {
      measure(v);
    } else if (!(single ? measure_server(v) : measure_batch(visits))) {
      outcome.status = RunStatus::kInterrupted;
      return false;
    }
  }
  return true;
}

std::span<const Visit* const> Runner::Impl::together(size_t begin) const {
  const Visit& first = *pending[begin];
  size_t end = begin + 1;
  if (arm(first).record.batch > 1)
    while (end < pending.size() && pending[end]->block == first.block &&
           pending[end]->arm == first.arm)
      ++end;
  return std::span<const Visit* const>(pending).subspan(begin, end - begin);
}

results::GenerationRecord Runner::Impl::record_of(const Visit& v) const {
  results::GenerationRecord g;
  g.arm_key = arm(v).record.key;
  g.prompt_key = prompt(v).record.key;
  g.repeat = v.repeat;
  g.sample = v.sample;
  g.seed = generation_seed(plan.suite.seed, prompt(v).record, v.sample);
  g.block = v.block;
  g.slot = v.slot;
  g.fault = arm(v).fault;
  g.started = utc_now();
  g.machine_id = machine_id;
  return g;
}

// The text this visit follows. Its decoding, where it is needed, is not measured.
const Answers& Runner::Impl::path_of(const Visit& v) {
  return paths.of(v.arm, v.prompt, [&] {
    return decoder.plain_answers(prompt(v), *arms[static_cast<size_t>(v.arm)].session,
                                 record_of(v).seed);
  });
}

// What an arm of synthetic acceptance drafts from; null for all others. Its decoding, where it is
// needed, is not measured.
const Answers* Runner::Impl::known_answers(const Visit& v) {
  if (!arm(v).needs_answer) return nullptr;
  if (plan.suite.replay) return &path_of(v);
  return &answers.of(v.arm, v.prompt, v.sample, [&] {
    return decoder.plain_answers(prompt(v), *arms[static_cast<size_t>(v.arm)].session,
                                 record_of(v).seed);
  });
}

// Before calls of decode_batch(), which have the session to themselves: to all prompts that they
// may meet. What cannot be decoded plainly stays without an answer, and its generation fails.
void Runner::Impl::learn_answers(const Visit& v) {
  if (!arm(v).needs_answer) return;
  Visit each = v;
  for (const int p : prompts_of_calls(plan, v)) try {
      each.prompt = p;
      known_answers(each);
    } catch (const base::DeviceFault& fault) {
      throw at_visit(each, fault);
    } catch (const std::exception&) {
    }
}

void Runner::Impl::measure(const Visit& v) {
  const auto arm_index = static_cast<size_t>(v.arm);
  RunningArm& running = arms[arm_index];
  engine::Session& session = *running.session;
  results::GenerationRecord g = record_of(v);
  std::vector<results::ScoreRecord> scores;
  int64_t begin = clock.now_ns();
  try {
    const Answers* path = plan.suite.replay ? &path_of(v) : nullptr;
    const Answers* known = known_answers(v);
    reset_peak_memory();
    const MachineWatch watch(session, options.turns);
    begin = clock.now_ns();
    decoder.converse(prompt(v), session, running.method(), path, g, known);
    g.total_ns = clock.now_ns() - begin;
    watch.describe(g);
    if (path != nullptr) paths.add_gaps(v.arm, v.prompt, conversation, session, g);
    scores = score_now(prompt(v), g.texts, options.scoring);
  } catch (const base::DeviceFault& fault) {
    throw at_visit(v, fault);
  } catch (const std::exception& e) {
    // One broken generation must not end an hour of measuring.
    mark_failed(g, e);
    g.total_ns = clock.now_ns() - begin;
    scores.clear();
    running.build();  // the old method may be in any state
  }
  keep(v, g, scores);
}

bool Runner::Impl::measure_server(const Visit& v) {
  results::GenerationRecord g = record_of(v);
  std::vector<results::ScoreRecord> scores;
  const int64_t begin = clock.now_ns();
  try {
    ask_conversation(plan, conversation, prompt(v), *arms[static_cast<size_t>(v.arm)].endpoint,
                     clock, g);
    g.total_ns = clock.now_ns() - begin;
    scores = score_now(prompt(v), g.texts, options.scoring);
  } catch (const EndpointStopped&) {
    return false;
  } catch (const EndpointGone& gone) {
    throw EndpointGone(place_of(v), gone.message());
  } catch (const std::exception& e) {
    mark_failed(g, e);
    g.total_ns = clock.now_ns() - begin;
    scores.clear();
  }
  keep(v, g, scores);
  arms[static_cast<size_t>(v.arm)].endpoint->settle();
  return true;
}

bool Runner::Impl::measure_batch(std::span<const Visit* const> visits) {
  const auto arm_index = static_cast<size_t>(visits.front()->arm);
  learn_answers(*visits.front());
  const auto begin = [&] {
    reset_peak_memory();
    BatchVisit::Hooks hooks;
    int64_t& next = next_calls[arm_index];
    if (next == 0) next = store.next_batch_call(arm_ids[arm_index]);
    hooks.record = [this, call = next++](const Visit& v) {
      results::GenerationRecord g = record_of(v);
      g.batch_call = call;
      return g;
    };
    hooks.ended = [this](const Visit& v, results::GenerationRecord g) {
      std::vector<results::ScoreRecord> scores;
      if (g.status == "ok") try {
          scores = score_now(prompt(v), g.texts, options.scoring);
        } catch (const std::exception& e) {
          mark_failed(g, e);
        }
      keep(v, g, scores);
    };
    hooks.known = [this](const Visit& v) { return answers.find(v.arm, v.prompt, v.sample); };
    hooks.stop = options.stop;
    return hooks;
  };
  try {
    for (const BatchCall& call : pending_calls(plan, visits))
      if (!decode_call(plan, conversation, clock, arms[arm_index], call, begin)) return false;
  } catch (const base::DeviceFault& fault) {
    throw at_visit(*visits.front(), fault);
  }
  return true;
}

// Every generation after it would fail, too: this one is left to the next process.
base::DeviceFault Runner::Impl::at_visit(const Visit& v, const base::DeviceFault& fault) const {
  return base::DeviceFault(place_of(v), fault);
}

std::string Runner::Impl::place_of(const Visit& v) const {
  const bool batch = arm(v).record.batch > 1;
  return fmt::format("arm {}, prompt {}{} ({} of {} generations are stored)", arm(v).record.label,
                     prompt(v).record.id, batch ? " and those beside it" : "",
                     outcome.stored_before + outcome.measured, outcome.planned);
}

void Runner::Impl::keep(const Visit& v, const results::GenerationRecord& g,
                        const std::vector<results::ScoreRecord>& scores) {
  const auto arm_index = static_cast<size_t>(v.arm);
  store.add_generation(outcome.run_id, arm_ids[arm_index],
                       prompt_ids[static_cast<size_t>(v.prompt)], g, scores);
  if (arms[arm_index].session != nullptr && raise_bytes(arms[arm_index], arm_bytes[arm_index]))
    store.update_arm_bytes(arm_ids[arm_index], arm_bytes[arm_index]);
  ++outcome.measured;
  if (g.status != "ok") ++outcome.failed;
  progress().generation_done(arm(v).record.label, prompt(v).record.id, g.status != "ok");
}

// Programs run, and models score, when no time is taken any more.
void Runner::Impl::take_scores(const SessionOf* session_of) {
  const DeferredScores programs =
      score_deferred(plan, prompt_ids, outcome.run_id, store, clock,
                     {options.scoring, options.score_workers, options.stop, options.progress});
  outcome.scored = programs.scored;
  outcome.unscored = programs.left;
  outcome.scoring_problems = programs.problems;
  if (session_of == nullptr || stop_requested()) return;
  const DeferredScores models = score_by_models(stored(), conversation, store, clock, *session_of,
                                                {options.stop, options.progress});
  outcome.scored += models.scored;
  outcome.unscored += models.left;
}

// This holds for a run that was cut short, too: what it stored is scored, unless the user wants the
// shell back.
RunOutcome Runner::Impl::finish(const SessionOf* session_of) {
  if (outcome.status != RunStatus::kInterrupted) {
    take_scores(session_of);
    if (outcome.unscored > 0 || lacks_model_scores(stored(), store))
      outcome.status = RunStatus::kInterrupted;
  }
  // A part of a plan ends the run where it is the last one.
  const bool part = plan.shard || options.source != nullptr;
  if (outcome.status == RunStatus::kComplete &&
      (!part ||
       results::count_generations(store, outcome.run_id).stored >= plan.whole.generations()))
    store.finish_run(outcome.run_id);
  return outcome;
}

Runner::Runner(const RunPlan& plan, const Conversation& conversation, results::ResultStore& store,
               base::Clock& clock, RunnerOptions options)
    : impl_(std::make_unique<Impl>(plan, conversation, store, clock, std::move(options))) {}
Runner::~Runner() = default;

int Runner::pending() const { return static_cast<int>(impl_->pending.size()); }

bool Runner::asks_models() const { return lacks_model_scores(impl_->stored(), impl_->store); }

RunOutcome Runner::run(engine::Session& session) {
  const std::vector<PlannedArm>& arms = impl_->plan.arms;
  EVALRUN_CHECK(std::all_of(arms.begin(), arms.end(),
                            [&](const PlannedArm& arm) { return arm.model == arms[0].model; }),
                "one session for arms of several models");
  return run([&](const auto&) -> engine::Session& { return session; });
}

RunOutcome Runner::run(const SessionOf& session_of) {
  Impl& r = *impl_;
  if (r.pending.empty()) return r.finish(&session_of);
  r.start(session_of);
  r.warn_of_hopeless_arms();
  warm_up(r.plan, r.pending, r.decoder, r.clock, r.arms, r.progress(), r.options.stop);
  warm_up_endpoints(r.plan, r.conversation, r.pending, r.arms, r.clock, r.progress(),
                    r.options.stop);
  r.progress().begin(pending(), r.outcome.stored_before);
  const CpuTimes before = read_cpu_times();
  r.measure_pending();
  const CpuTimes after = read_cpu_times();
  r.progress().end();
  if (after.total > before.total)
    r.outcome.steal_share = static_cast<double>(after.steal - before.steal) /
                            static_cast<double>(after.total - before.total);
  return r.finish(&session_of);
}

RunOutcome Runner::finish_without_measuring() {
  EVALRUN_CHECK(impl_->pending.empty(), "{} generations are pending", impl_->pending.size());
  return impl_->finish(nullptr);
}

}  // namespace evalrun::runners
