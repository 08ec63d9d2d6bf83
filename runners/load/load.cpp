#include "runners/load/load.h"

#include <fmt/format.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace evalrun::runners {
namespace {

class LoadCourseRunner {
 public:
  LoadCourseRunner(const LoadPlan& plan, const LoadCourse& course, const LoadTools& tools,
                   results::LoadFile& file, ProgressSink& progress)
      : plan_(plan), course_(course), tools_(tools), file_(file), progress_(progress) {
    start_ns_ = tools_.clock.now_ns();
    for (const results::LoadPlace& place : plan_.order)
      if (!file_.has(place)) open_.push_back(place);
    for (const results::LoadPlace& place : open_) all_ += size_of(place);
  }

  LoadOutcome run() {
    LoadOutcome outcome;
    outcome.blocks_left = static_cast<int64_t>(open_.size());
    if (open_.empty()) return outcome;
    warm_up();
    for (const results::LoadPlace& place : open_) {
      if (stopped()) break;
      if (!measure(place)) break;
      --outcome.blocks_left;
    }
    progress_.end();
    if (outcome.blocks_left > 0)
      outcome.status = tools_.stop && tools_.stop() ? LoadOutcome::Status::kInterrupted
                                                    : LoadOutcome::Status::kOutOfTime;
    return outcome;
  }

 private:
  double elapsed_s() const { return static_cast<double>(tools_.clock.now_ns() - start_ns_) * 1e-9; }
  bool stopped() const {
    return (tools_.stop && tools_.stop()) ||
           (course_.max_time_s > 0 && elapsed_s() >= course_.max_time_s);
  }
  std::pair<size_t, size_t> bounds(const results::LoadPlace& place) const {
    return slice_of(plan_.prompts.size(), plan_.setup.slices[static_cast<size_t>(place.level)],
                    place.slice);
  }
  size_t size_of(const results::LoadPlace& place) const {
    const auto [begin, end] = bounds(place);
    return end - begin;
  }

  void warm_up() {
    for (size_t s = 0; s < plan_.servers.size(); ++s) {
      progress_.warming_up(plan_.setup.servers[s].name);
      const std::unique_ptr<Endpoint> endpoint = tools_.make(plan_.servers[s]);
      for (int i = 0; i < course_.warmup && !stopped(); ++i)
        endpoint->complete(plan_.prompts[static_cast<size_t>(i) % plan_.prompts.size()].request);
      endpoint->settle();
    }
  }

  // False where the block was stopped.
  bool measure(const results::LoadPlace& place) {
    const results::LoadSetup& setup = plan_.setup;
    const results::LoadLevel& level = setup.levels[static_cast<size_t>(place.level)];
    const auto [begin, end] = bounds(place);
    const std::vector<int64_t> arrivals =
        level.open() ? arrival_times(setup, place, end - begin) : std::vector<int64_t>();
    const LoadBlockRequest request{
        plan_.servers[static_cast<size_t>(place.server)], level,
        std::span<const LoadPrompt>(plan_.prompts).subspan(begin, end - begin), arrivals, place};
    const std::string what = fmt::format("{}, {}, repeat {} of {}",
                                         setup.servers[static_cast<size_t>(place.server)].name,
                                         to_string(level), place.repeat + 1, setup.repeats);
    LoadTools tools = tools_;
    tools.stop = [this] { return stopped(); };
    file_.begin(place);
    const LoadBlockResult result =
        run_load_block(request, tools, [&](const results::LoadRequest& r) {
          file_.add(r);
          ++done_;
          progress_.working(what, static_cast<double>(done_) / static_cast<double>(all_),
                            elapsed_s());
        });
    if (result.error) {
      progress_.end();
      throw base::Error(
          base::ExitCode::kData, result.error->message(),
          (result.error->hint().empty() ? "start the server again" : result.error->hint()) +
              "; what was measured is kept, and the same command goes on");
    }
    if (result.complete) file_.end(result.block);
    return result.complete;
  }

  const LoadPlan& plan_;
  const LoadCourse& course_;
  const LoadTools& tools_;
  results::LoadFile& file_;
  ProgressSink& progress_;
  std::vector<results::LoadPlace> open_;
  int64_t start_ns_ = 0;
  size_t all_ = 0, done_ = 0;  // requests
};

}  // namespace

void check_load_servers(LoadPlan& plan, const LoadTools& tools) {
  for (size_t s = 0; s < plan.servers.size(); ++s) {
    const std::unique_ptr<Endpoint> endpoint = tools.make(plan.servers[s]);
    results::LoadServer& server = plan.setup.servers[s];
    server.model = endpoint->check(plan.servers[s].start_s.value_or(0));
    // Else every client would ask for it, within the time of its first request.
    if (plan.servers[s].model.empty()) plan.servers[s].model = server.model;
    const EndpointAbilities abilities = endpoint->abilities();
    server.verified = abilities.verified;
    if (plan.setup.ignore_eos && !abilities.ignores_eos)
      throw base::usage_error(fmt::format("{}: its API ({}) cannot be told to go on after the stop "
                                          "token",
                                          server.name, plan.servers[s].api),
                              "leave --ignore-eos out");
  }
}

LoadOutcome run_load(const LoadPlan& plan, const LoadCourse& course, const LoadTools& tools,
                     results::LoadFile& file, ProgressSink& progress) {
  return LoadCourseRunner(plan, course, tools, file, progress).run();
}

}  // namespace evalrun::runners
