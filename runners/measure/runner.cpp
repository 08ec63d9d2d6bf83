#include "runners/measure/runner.h"

#include <algorithm>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "engine/device_time.h"
#include "engine/devices.h"
#include "engine/machine_probes.h"
#include "evaluators/evaluator.h"
#include "methods/decode_loop.h"
#include "methods/replay.h"
#include "runners/machine/environment.h"
#include "runners/machine/gpu_state.h"
#include "runners/machine/machine_clock.h"
#include "runners/measure/deferred_scores.h"
#include "runners/measure/replay_paths.h"
#include "runners/measure/warmup.h"

namespace evalrun::runners {
namespace {

constexpr int kWarmupTokens = 16;  // of one automatic warm-up generation

uint64_t hash64(const std::string& text) {
  return std::stoull(base::sha256_hex(text).substr(0, 16), nullptr, 16);
}

// The same for every arm, repeat and build: sample k of a prompt always starts from the same seed.
uint64_t generation_seed(uint64_t suite_seed, const results::PromptRecord& prompt, int sample) {
  return base::combine_seeds(
      {suite_seed, hash64(prompt.task + "\n" + prompt.id), static_cast<uint64_t>(sample)});
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

struct Runner::Impl {
  const RunPlan& plan;
  const Conversation& conversation;
  results::ResultStore& store;
  base::Clock& clock;
  RunnerOptions options;
  ProgressSink silent;

  std::vector<int64_t> arm_ids, prompt_ids;
  std::vector<results::ArmRecord> arm_bytes;  // grows with what is measured
  std::vector<const Visit*> pending;
  std::vector<std::unique_ptr<methods::DecodingMethod>> methods;  // one per arm
  std::vector<engine::Session*> sessions;                         // likewise
  ReplayPaths paths;
  RunOutcome outcome;

  Impl(const RunPlan& p, const Conversation& c, results::ResultStore& s, base::Clock& k,
       RunnerOptions o)
      : plan(p),
        conversation(c),
        store(s),
        clock(k),
        options(std::move(o)),
        paths(plan, store, arm_ids, prompt_ids) {
    outcome.run_id = store.add_run(plan.run);
    outcome.run_key = plan.run.key;
    for (const PlannedArm& arm : plan.arms) {
      arm_ids.push_back(store.add_arm(outcome.run_id, arm.record));
      arm_bytes.push_back(arm.record);
    }
    for (const PlannedPrompt& prompt : plan.prompts)
      prompt_ids.push_back(store.add_prompt(outcome.run_id, prompt.record));
    for (const Visit& v : plan.schedule)
      if (!store.has_generation(arm_ids[static_cast<size_t>(v.arm)],
                                prompt_ids[static_cast<size_t>(v.prompt)], v.repeat, v.sample))
        pending.push_back(&v);
    outcome.planned = static_cast<int>(plan.schedule.size());
    outcome.stored_before = outcome.planned - static_cast<int>(pending.size());
  }

  ProgressSink& progress() { return options.progress != nullptr ? *options.progress : silent; }
  const PlannedArm& arm(const Visit& v) const { return plan.arms[static_cast<size_t>(v.arm)]; }
  const PlannedPrompt& prompt(const Visit& v) const {
    return plan.prompts[static_cast<size_t>(v.prompt)];
  }

  methods::TurnRequest turn_request(const PlannedPrompt& planned, std::span<const int32_t> ids,
                                    uint64_t seed) const {
    methods::TurnRequest request;
    request.prompt = ids;
    request.max_new = planned.max_new;
    if (!plan.suite.ignore_eos) request.stop_ids = conversation.stop_ids();
    request.sampling = plan.suite.sampling;
    request.seed = seed;
    return request;
  }

  // All turns of one conversation, made to follow `path` where there is one. Tokenising and
  // detokenising stand outside the decode times.
  void converse(const PlannedPrompt& planned, engine::Session& session,
                methods::DecodingMethod& method, const Answers* path,
                results::GenerationRecord& g) {
    std::vector<int32_t> ids, previous;
    std::optional<methods::StopText> stop_text =
        plan.suite.ignore_eos ? std::nullopt : conversation.stop_text(planned.prompt);
    for (size_t turn = 0; turn < planned.prompt.turns.size(); ++turn) {
      const int64_t begin = clock.now_ns();
      ids = conversation.encode(planned.prompt, conversation.render(planned.prompt, g.texts));
      const int64_t encoded = clock.now_ns();
      g.tokenize_ns += encoded - begin;
      methods::TurnRequest request =
          turn_request(planned, ids, turn == 0 ? g.seed : base::combine_seeds({g.seed, turn}));
      request.stop_text = stop_text ? &*stop_text : nullptr;
      // The last prompt token is always computed again: its logits give the first answer token.
      request.keep = std::min(common_prefix(previous, ids), static_cast<int>(ids.size()) - 1);
      g.turns.push_back(path == nullptr ? methods::decode_turn(method, session, request, clock)
                                        : replay_turn(method, session, request, path->at(turn)));
      const int64_t decoded = clock.now_ns();
      g.texts.push_back(conversation.decode(g.turns.back().tokens));
      g.detokenize_ns += clock.now_ns() - decoded;
      previous = ids;
    }
  }

  results::TurnRecord replay_turn(methods::DecodingMethod& method, engine::Session& session,
                                  const methods::TurnRequest& request,
                                  const std::vector<int32_t>& answer) {
    const methods::Replay replay(method, answer);
    results::TurnRecord turn = methods::decode_turn(method, session, request, clock);
    EVALRUN_CHECK(turn.tokens == answer, "a replay left its text");
    turn.asked = replay.trace().asked;
    for (const methods::Disagreement& d : replay.trace().disagreements)
      turn.divergences.push_back(
          {d.index, answer[static_cast<size_t>(d.index)], d.found, std::nullopt, 0});
    return turn;
  }

  // The text this visit follows. Its decoding, where it is needed, is not measured.
  const Answers& path_of(const Visit& v) {
    return paths.of(v.arm, v.prompt, [&] {
      engine::Session& session = *sessions[static_cast<size_t>(v.arm)];
      const auto plain = methods::parse_method("ar").info->build({}, {});
      results::GenerationRecord g;
      session.reset();
      converse(prompt(v), session, *plain, nullptr, g);
      Answers answers;
      for (results::TurnRecord& turn : g.turns) answers.push_back(std::move(turn.tokens));
      return answers;
    });
  }

  std::vector<results::ScoreRecord> score(const PlannedPrompt& planned,
                                          const results::GenerationRecord& g) const {
    std::vector<results::ScoreRecord> scores;
    if (!planned.prompt.reference.has_value()) return scores;
    for (const std::string& id : planned.evaluators) {
      const evaluators::EvaluatorEntry& judge = evaluators::evaluator_registry().get(id);
      if (!judge.info.deferred)
        scores.push_back(judge.score(planned.prompt, g.texts, options.scoring));
    }
    return scores;
  }

  void measure(const Visit& v) {
    const auto arm_index = static_cast<size_t>(v.arm);
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
    engine::Session& session = *sessions[arm_index];
    std::vector<results::ScoreRecord> scores;
    int64_t begin = clock.now_ns();
    try {
      const Answers* path = plan.suite.replay ? &path_of(v) : nullptr;
      reset_peak_memory();
      session.reset();
      const auto gpu_before = sample_gpu(session.options().device);
      const engine::DeviceTime busy_before = engine::device_time();
      const MachineCounters before = read_machine_counters();
      begin = clock.now_ns();
      converse(prompt(v), session, *methods[arm_index], path, g);
      g.total_ns = clock.now_ns() - begin;
      g.clock = clock_between(before, read_machine_counters());
      const auto gpu_after = sample_gpu(session.options().device);
      std::optional<results::GpuBusy> busy;
      if (session.options().time_device) busy = busy_between(busy_before, engine::device_time());
      g.gpu = gpu_between(gpu_before, gpu_after, busy);
      if (g.clock) g.clock->device_mhz = gpu_after ? gpu_after->sm_mhz : processor_mhz();
      if (path != nullptr) paths.add_gaps(v.arm, v.prompt, conversation, session, g);
      scores = score(prompt(v), g);
    } catch (const base::DeviceFault& fault) {
      // Every generation behind it would fail, too: this one is left to the next process.
      throw base::DeviceFault(
          fmt::format("arm {}, prompt {} ({} of {} generations are stored)", arm(v).record.label,
                      prompt(v).record.id, outcome.stored_before + outcome.measured,
                      outcome.planned),
          fault);
    } catch (const std::exception& e) {
      // One broken generation must not end an hour of measuring; its row says what happened and
      // carries no half-measured numbers.
      g.status = "failed: " + first_line(e.what());
      g.turns.clear();
      g.texts.clear();
      g.total_ns = clock.now_ns() - begin;
      scores.clear();
      methods[arm_index] = arm(v).build();  // the old object may be in any state
      ++outcome.failed;
    }
    store.add_generation(outcome.run_id, arm_ids[arm_index],
                         prompt_ids[static_cast<size_t>(v.prompt)], g, scores);
    note_bytes(arm_index);
    ++outcome.measured;
    progress().generation_done(arm(v).record.label, prompt(v).record.id, g.status != "ok");
  }

  void note_bytes(size_t arm_index) {
    results::ArmRecord& bytes = arm_bytes[arm_index];
    const methods::DecodingMethod& method = *methods[arm_index];
    const auto kv = static_cast<int64_t>(sessions[arm_index]->kv_bytes() + method.extra_kv_bytes());
    const auto extra = static_cast<int64_t>(method.extra_parameter_bytes());
    const int64_t peak = peak_memory_bytes();
    if (kv <= bytes.kv_bytes && extra <= bytes.extra_parameter_bytes && peak <= bytes.peak_bytes)
      return;
    bytes.kv_bytes = std::max(bytes.kv_bytes, kv);
    bytes.extra_parameter_bytes = std::max(bytes.extra_parameter_bytes, extra);
    bytes.peak_bytes = std::max(bytes.peak_bytes, peak);
    store.update_arm_bytes(arm_ids[arm_index], bytes);
  }

  // One generation that is thrown away; its step times go to `steady` if given. A method that fails
  // here fails again in its first measured generation, where the failure is stored.
  void warm_generation(size_t arm_index, const PlannedPrompt& planned, int max_new,
                       SteadyState* steady) {
    engine::Session& session = *sessions[arm_index];
    try {
      session.reset();
      const std::vector<int32_t> ids =
          conversation.encode(planned.prompt, conversation.render(planned.prompt, {}));
      methods::TurnRequest request = turn_request(planned, ids, 0);
      request.max_new = max_new;
      request.stop_ids = {};
      const results::TurnRecord turn =
          methods::decode_turn(*methods[arm_index], session, request, clock);
      if (steady == nullptr) return;
      for (const results::StepRecord& s : turn.steps)
        steady->add(s.draft_ns + s.verify_ns + s.commit_ns + s.other_ns);
    } catch (const base::DeviceFault& fault) {
      throw base::DeviceFault(fmt::format("warm-up of {}", plan.arms[arm_index].record.label),
                              fault);
    } catch (const std::exception&) {
      methods[arm_index] = plan.arms[arm_index].build();
    }
  }

  // With the run, so that a report can say what a row cost when it was measured.
  void store_row_cost() {
    const MeasuredRowCost& cost = *plan.row_cost;
    if (cost.read_bandwidth > 0) {
      store.add_environment(outcome.run_id, "read_bandwidth",
                            fmt::format("{:.0f}", cost.read_bandwidth));
      store.add_environment(outcome.run_id, "forward_bytes", std::to_string(cost.forward_bytes));
    }
    if (cost.table.empty()) return;
    store.add_environment(outcome.run_id, "row_cost", to_json(cost.table).dump());
    if (cost.round_trip_ns > 0)
      store.add_environment(outcome.run_id, "cache_line_round_trip_ns",
                            fmt::format("{:.0f}", cost.round_trip_ns));
  }

  bool stop_requested() const { return options.stop && options.stop(); }

  void warm_up() {
    const Suite& suite = plan.suite;
    std::vector<const PlannedPrompt*> prompts;  // in the order in which they will be measured
    for (const Visit* v : pending)
      if (prompts.empty() || prompts.back() != &prompt(*v)) prompts.push_back(&prompt(*v));
    const PlannedPrompt& first = *prompts.front();
    for (size_t a = 0; a < plan.arms.size(); ++a) {
      if (suite.warmup != 0) progress().warming_up(plan.arms[a].record.label);
      // Prompts differ in the graphs that they need (engine/cuda/runtime/graphs.h), on the CPU in
      // nothing.
      const bool graphs = engine::is_gpu(sessions[a]->options().device);
      const auto planned = [&](size_t i) -> const PlannedPrompt& {
        return graphs ? *prompts[i % prompts.size()] : first;
      };
      for (int i = 0; i < suite.warmup && !stop_requested(); ++i) {
        const PlannedPrompt& next = planned(static_cast<size_t>(i));
        warm_generation(a, next, next.max_new, nullptr);
      }
      if (suite.warmup >= 0) continue;
      SteadyState steady;
      const int64_t begin = clock.now_ns();
      const auto out_of_time = [&] {
        return static_cast<double>(clock.now_ns() - begin) * 1e-9 >= suite.warmup_limit_s;
      };
      // The baseline brings the machine to its steady state; the others only touch their own code
      // and memory once. On a GPU each goes on until it finds all its graphs: a method has
      // more of them, and making them is no decoding.
      bool warm = false;
      for (size_t i = 0; !warm; ++i) {
        const PlannedPrompt& next = planned(i);
        const int before = steady.steps();
        const int64_t misses = engine::device_time().graph_misses;
        warm_generation(a, next, graphs ? next.max_new : std::min(first.max_new, kWarmupTokens),
                        &steady);
        if (steady.steps() == before) break;  // failed, or one token only: it would never settle
        warm = (a != 0 || steady.settled()) && misses == engine::device_time().graph_misses;
        if (out_of_time() || stop_requested()) break;
      }
    }
  }

  // Programs run when no time is taken any more. Also for a run that was cut short: what is there
  // is scored, unless the user wants the shell back.
  void score_rest() {
    if (outcome.status == RunStatus::kInterrupted) return;
    const DeferredScores scores =
        score_deferred(plan, prompt_ids, outcome.run_id, store, clock,
                       {options.scoring, options.score_workers, options.stop, options.progress});
    outcome.scored = scores.scored;
    outcome.unscored = scores.left;
    outcome.scoring_problems = scores.problems;
    if (scores.left > 0) outcome.status = RunStatus::kInterrupted;
  }

  void measure_pending() {
    const int64_t begin = clock.now_ns();
    int block = -1;
    for (const Visit* v : pending) {
      if (v->block != block) {  // arms of one prompt stay together
        if (stop_requested()) {
          outcome.status = RunStatus::kInterrupted;
          return;
        }
        if (options.max_time_s > 0 &&
            static_cast<double>(clock.now_ns() - begin) * 1e-9 >= options.max_time_s) {
          outcome.status = RunStatus::kOutOfTime;
          return;
        }
        block = v->block;
      }
      measure(*v);
    }
  }
};

engine::Session& ModelSessions::of(const std::shared_ptr<const engine::Model>& model) {
  std::unique_ptr<engine::Session>& session = sessions_[model];
  if (session == nullptr) session = engine::Session::create(model, options_);
  return *session;
}

Runner::Runner(const RunPlan& plan, const Conversation& conversation, results::ResultStore& store,
               base::Clock& clock, RunnerOptions options)
    : impl_(std::make_unique<Impl>(plan, conversation, store, clock, std::move(options))) {}
Runner::~Runner() = default;

int Runner::pending() const { return static_cast<int>(impl_->pending.size()); }

RunOutcome Runner::run(engine::Session& session) {
  const std::vector<PlannedArm>& arms = impl_->plan.arms;
  EVALRUN_CHECK(std::all_of(arms.begin(), arms.end(),
                            [&](const PlannedArm& arm) { return arm.model == arms[0].model; }),
                "one session for arms of several models");
  return run([&](const auto&) -> engine::Session& { return session; });
}

RunOutcome Runner::run(const SessionOf& session_of) {
  Impl& r = *impl_;
  if (r.pending.empty()) return finish_without_measuring();
  for (const PlannedArm& arm : r.plan.arms) {
    engine::Session& session = session_of(arm.model);
    EVALRUN_CHECK(session.capacity() >= r.plan.capacity, "session of {} tokens, {} planned",
                  session.capacity(), r.plan.capacity);
    r.sessions.push_back(&session);
  }
  r.store_row_cost();
  for (const PlannedArm& arm : r.plan.arms) r.methods.push_back(arm.build());
  r.warm_up();
  r.progress().begin(pending(), r.outcome.stored_before);
  const CpuTimes before = read_cpu_times();
  r.measure_pending();
  const CpuTimes after = read_cpu_times();
  r.progress().end();
  if (after.total > before.total)
    r.outcome.steal_share = static_cast<double>(after.steal - before.steal) /
                            static_cast<double>(after.total - before.total);
  r.score_rest();
  if (r.outcome.status == RunStatus::kComplete) r.store.finish_run(r.outcome.run_id);
  return r.outcome;
}

RunOutcome Runner::finish_without_measuring() {
  EVALRUN_CHECK(impl_->pending.empty(), "{} generations are pending", impl_->pending.size());
  impl_->score_rest();
  if (impl_->outcome.status == RunStatus::kComplete) impl_->store.finish_run(impl_->outcome.run_id);
  return impl_->outcome;
}

void measure_row_cost(const PlanRequest& request, const RunPlan& plan,
                      const RunnerOptions& options) {
  if (options.row_cost_seconds <= 0) return;
  *plan.row_cost = obtain_row_cost({request.target, planned_session(request, plan),
                                    options.row_cost_cache, options.row_cost_seconds});
  if (engine::is_gpu(planned_session(request, plan).device)) return;  // its memory is not probed
  // Of larger models a part: what is beyond every cache is read alike.
  constexpr size_t kMostProbed = size_t{256} << 20;
  // Enough passes over either: one over a small model takes microseconds.
  const double seconds = request.target->streamed_bytes() < (size_t{16} << 20) ? 0.02 : 0.2;
  plan.row_cost->forward_bytes = static_cast<int64_t>(request.target->streamed_bytes());
  plan.row_cost->read_bandwidth =
      engine::read_bandwidth(std::min(request.target->streamed_bytes(), kMostProbed),
                             planned_session(request, plan).n_threads, seconds);
}

RunOutcome run_suite(const PlanRequest& request, results::ResultStore& store, base::Clock& clock,
                     const RunnerOptions& options) {
  const RunPlan plan = make_plan(request);
  const Conversation conversation(*request.target);
  if (options.progress != nullptr)
    for (const std::string& method : plan.left_out) options.progress->left_out(method);
  Runner runner(plan, conversation, store, clock, options);
  if (runner.pending() == 0) return runner.finish_without_measuring();
  measure_row_cost(request, plan, options);
  ModelSessions sessions(planned_session(request, plan));
  return runner.run([&](const auto& model) -> engine::Session& { return sessions.of(model); });
}

}  // namespace evalrun::runners
