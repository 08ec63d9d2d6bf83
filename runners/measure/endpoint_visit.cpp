#include "runners/measure/endpoint_visit.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "results/queries.h"
#include "runners/measure/open_conversation.h"
#include "runners/measure/warmup.h"

namespace evalrun::runners {
namespace {

constexpr double kLongestServerStart = 120;  // seconds, before the first request
constexpr int kWarmUpAnswer = 16;            // tokens of an automatic warm-up request
constexpr int kMostWarmUpRequests = 5;

EndpointRequest visit_request(const Suite& suite, const PlannedPrompt& planned,
                              const methods::TurnRequest& turn, std::string text, int max_new) {
  EndpointRequest request;
  request.prompt_ids.assign(turn.prompt.begin(), turn.prompt.end());
  request.prompt_text = std::move(text);
  request.max_new = max_new > 0 ? std::min(max_new, turn.max_new) : turn.max_new;
  request.sampling = turn.sampling;
  request.seed = turn.seed;
  request.ignore_eos = suite.ignore_eos;
  if (!suite.ignore_eos) request.stop_texts = planned.prompt.stop.strings;
  return request;
}

// Whether every further request would fail, too.
bool is_gone_for_all(const EndpointReply& reply) {
  switch (reply.fault) {
    case EndpointFault::kDown:
    case EndpointFault::kLoading:
    case EndpointFault::kOtherModel:
      return true;
    case EndpointFault::kRefused:
      return reply.status == 401 || reply.status == 403 || reply.status == 404;
    default:
      return false;
  }
}

void reply_or_throw(const EndpointReply& reply, const EndpointSpec& spec) {
  if (reply.ok()) return;
  if (reply.fault == EndpointFault::kStopped) throw EndpointStopped();
  if (is_gone_for_all(reply)) throw EndpointGone("endpoint " + spec.name, reply.problem);
  throw std::runtime_error(fmt::format("{}: {}", to_string(reply.fault), reply.problem));
}

class EndpointWarmUp {
 public:
  EndpointWarmUp(const RunPlan& plan, const Conversation& conversation, base::Clock& clock,
                 const std::function<bool()>& stop)
      : plan_(plan), conversation_(conversation), clock_(clock), stop_(stop) {}

  void warm(const RunningArm& arm, const PlannedPrompt& planned) {
    const bool automatic = plan_.suite.warmup < 0;
    const int most = automatic ? kMostWarmUpRequests : plan_.suite.warmup;
    const int64_t begin = clock_.now_ns();
    SteadyState steady;
    for (int i = 0; i < most && !(stop_ && stop_()); ++i) {
      if (!ask(arm, planned, automatic ? kWarmUpAnswer : 0, steady)) return;
      if (!automatic) continue;
      const double seconds = 1e-9 * static_cast<double>(clock_.now_ns() - begin);
      if (steady.settled() || seconds >= plan_.suite.warmup_limit_s) return;
    }
  }

 private:
  // False: this request failed, as the first measured one may, where it is stored.
  bool ask(const RunningArm& arm, const PlannedPrompt& planned, int max_new, SteadyState& steady) {
    results::GenerationRecord g;
    try {
      ask_conversation(plan_, conversation_, planned, *arm.endpoint, clock_, g, max_new);
    } catch (const EndpointGone&) {
      throw;
    } catch (const std::exception&) {
      return false;
    }
    for (const results::StepRecord& step : g.turns.front().steps) steady.add(step.verify_ns);
    return true;
  }

  const RunPlan& plan_;
  const Conversation& conversation_;
  base::Clock& clock_;
  const std::function<bool()>& stop_;
};

}  // namespace

void ask_conversation(const RunPlan& plan, const Conversation& conversation,
                      const PlannedPrompt& planned, Endpoint& endpoint, base::Clock& clock,
                      results::GenerationRecord& g, int max_new) {
  OpenConversation open(plan, conversation, planned, clock, g);
  while (!open.ended()) {
    std::string text = conversation.render(planned.prompt, g.texts);
    const methods::TurnRequest& turn = open.next();
    const EndpointReply reply =
        endpoint.complete(visit_request(plan.suite, planned, turn, std::move(text), max_new));
    reply_or_throw(reply, endpoint.spec());
    AnsweredTurn answered = answered_turn(reply, turn, conversation);
    open.take(std::move(answered.turn));
    if (answered.text) g.texts.back() = *answered.text;
  }
}

void connect_endpoints(std::span<RunningArm> arms, int64_t run_id, results::ResultStore& store,
                       base::Clock& clock, const std::function<bool()>& stop) {
  for (RunningArm& arm : arms) {
    if (!arm.planned->endpoint) continue;
    const EndpointSpec& spec = *arm.planned->endpoint;
    arm.endpoint = arm.planned->connect({.clock = clock, .stop = stop});
    const std::string model = arm.endpoint->check(spec.start_s.value_or(kLongestServerStart));
    store.add_environment(run_id, fmt::format("endpoint.{}.host", spec.name), host_of(spec));
    const std::string fact = fmt::format("endpoint.{}.model", spec.name);
    store.add_environment(run_id, fact, model);
    if (const std::string was = results::environment(store, run_id)[fact]; was != model)
      throw base::data_error(
          spec.url, "model",
          fmt::format("endpoint {} has '{}' now, and had '{}' when this run began", spec.name,
                      model, was),
          "start the server with that model again, or begin a run of its own: --no-resume");
  }
}

void warm_up_endpoints(const RunPlan& plan, const Conversation& conversation,
                       std::span<const Visit* const> pending, std::span<RunningArm> arms,
                       base::Clock& clock, ProgressSink& progress,
                       const std::function<bool()>& stop) {
  if (plan.suite.warmup == 0 || pending.empty()) return;
  EndpointWarmUp warm(plan, conversation, clock, stop);
  const PlannedPrompt& first = plan.prompts[static_cast<size_t>(pending.front()->prompt)];
  for (RunningArm& arm : arms) {
    if (arm.endpoint == nullptr) continue;
    progress.warming_up(arm.planned->record.label);
    warm.warm(arm, first);
    arm.endpoint->settle();
  }
}

}  // namespace evalrun::runners
