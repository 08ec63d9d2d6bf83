// Servers under load: clients against servers that a test scripts, with real threads and waits of a
// few milliseconds; figures of them are in tests/reports/load.
#include "runners/load/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "reports/load/load_figures.h"
#include "tests/endpoints/memory_server.h"
#include "tests/temp_folder.h"

namespace evalrun::runners {
namespace {

using ::testing::HasSubstr;
using Milliseconds = std::chrono::milliseconds;

// `pieces` of tokens, a millisecond from each other; the call itself takes `ms`.
EndpointReply reply_of(const std::vector<int32_t>& pieces, int ms = 0) {
  std::this_thread::sleep_for(Milliseconds(ms));
  EndpointReply reply;
  int64_t tokens = 0, ns = 0;
  for (const int32_t k : pieces) {
    reply.arrivals.push_back({ns += 1'000'000, k, "x"});
    tokens += k;
  }
  reply.counts.new_tokens = tokens;
  reply.total_ns = ns;
  return reply;
}

EndpointReply fault_of(EndpointFault fault) {
  return tests::fake_fault(fault, "http://127.0.0.1:1: it did not work");
}

class Load : public ::testing::Test {
 protected:
  Load() {
    server_.abilities = {};
    server_.model = "tiny";
    server_.answer_call = [](int) { return reply_of({1, 1}); };
    server_.on_check = [this](const EndpointSpec& spec) {
      if (!up_) throw base::data_error(spec.url, "", "nobody listens", "start the server");
    };
    tools_.make = [this](const EndpointSpec& spec) {
      return std::make_unique<tests::MemoryEndpoint>(spec, server_);
    };
  }
  LoadPlan plan(std::vector<results::LoadLevel> levels, int prompts, int servers = 1,
                int repeats = 1, int block = 0) {
    results::LoadSetup setup;
    setup.levels = std::move(levels);
    setup.repeats = repeats;
    setup.seed = 7;
    std::vector<EndpointSpec> specs;
    for (int s = 0; s < servers; ++s) {
      EndpointSpec spec;
      spec.name = std::string(1, static_cast<char>('a' + s));
      spec.url = "http://127.0.0.1:1";
      results::LoadServer described;
      described.name = spec.name;
      setup.servers.push_back(described);
      specs.push_back(spec);
    }
    std::vector<LoadPrompt> list(static_cast<size_t>(prompts));
    for (size_t i = 0; i < list.size(); ++i) list[i].id = fmt::format("p{}", i);
    return make_load_plan(std::move(setup), std::move(specs), std::move(list), {.block = block});
  }
  // The first block of a plan of one level.
  results::LoadBlock block_of(const LoadPlan& p) {
    const std::vector<int64_t> arrivals = p.setup.levels[0].open()
                                              ? arrival_times(p.setup, p.order[0], p.prompts.size())
                                              : std::vector<int64_t>();
    LoadBlockResult result = run_load_block(
        {p.servers[0], p.setup.levels[0], p.prompts, arrivals, p.order[0]}, tools_, nullptr);
    EXPECT_TRUE(result.complete);
    return std::move(result.block);
  }
  LoadOutcome run(const LoadPlan& p) {
    results::LoadFile file(path(), p.setup);
    return run_load(p, {.warmup = 0}, tools_, file, progress_);
  }
  std::string path() const { return folder_.file("load.jsonl"); }

  tests::TempFolder folder_;
  tests::MemoryServer server_;
  std::atomic<bool> up_ = true;
  base::SteadyClock clock_;
  LoadTools tools_{.clock = clock_};
  ProgressSink progress_;
};

// Lets `n` callers go on together; false where they do not come in two seconds.
class Meeting {
 public:
  explicit Meeting(int n) : n_(n) {}
  bool wait() {
    std::unique_lock lock(mutex_);
    const int needed = (came_++ / n_ + 1) * n_;
    changed_.notify_all();
    return changed_.wait_for(lock, std::chrono::seconds(2), [&] { return came_ >= needed; });
  }

 private:
  int n_, came_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

TEST_F(Load, AClosedLoopKeepsSoManyInFlight) {
  Meeting three(3);
  std::atomic<bool> met = true;
  server_.answer_call = [&](int) {
    if (!three.wait()) met = false;  // fewer than three at a time
    return reply_of({1});
  };
  const results::LoadBlock block = block_of(plan({{3, 0}}, 12));
  EXPECT_TRUE(met);
  EXPECT_EQ(server_.most, 3);  // and never more
  ASSERT_EQ(block.requests.size(), 12u);
  std::set<int> seen;
  for (const results::LoadRequest& r : block.requests) {
    seen.insert(r.index);
    EXPECT_EQ(r.scheduled_ns, r.sent_ns);
    EXPECT_FALSE(r.late);
  }
  EXPECT_EQ(seen.size(), 12u);
}

TEST_F(Load, AnOpenLoopFollowsTheSeededSchedule) {
  const LoadPlan p = plan({{8, 500}}, 10, 2, 2, 5);
  results::LoadPlace first, other;
  other.slice = 1;
  const std::vector<int64_t> times = arrival_times(p.setup, first, 5);
  results::LoadPlace second_server = first;
  second_server.server = 1;
  EXPECT_EQ(arrival_times(p.setup, second_server, 5), times);
  EXPECT_NE(arrival_times(p.setup, other, 5), times);
  const std::vector<int64_t> many = arrival_times(p.setup, first, 4000);
  EXPECT_TRUE(std::is_sorted(many.begin(), many.end()));
  EXPECT_NEAR(static_cast<double>(many.back()) / 4000, 2e6, 2e6 * 0.05);  // 500 a second

  const LoadPlan one = plan({{8, 500}}, 10);
  const std::vector<int64_t> expected = arrival_times(one.setup, one.order[0], 10);
  for (const results::LoadRequest& r : block_of(one).requests) {
    EXPECT_EQ(r.scheduled_ns, expected[static_cast<size_t>(r.index)]);
    EXPECT_GE(r.sent_ns, r.scheduled_ns);
  }
}

TEST_F(Load, AStallIsNotOmitted) {
  constexpr int kStallMs = 150;
  server_.answer_call = [](int call) { return reply_of({1, 1}, call == 0 ? kStallMs : 0); };
  const LoadPlan p = plan({{1, 400}}, 30);  // all arrive in about 75 ms
  const results::LoadBlock block = block_of(p);
  int64_t stall_end = 0;
  for (const results::LoadRequest& r : block.requests)
    if (r.index == 0) stall_end = r.end_ns;
  EXPECT_GE(stall_end, kStallMs * 1'000'000);
  int waited = 0;
  for (const results::LoadRequest& r : block.requests) {
    if (r.index == 0 || r.scheduled_ns > stall_end) continue;
    ++waited;
    EXPECT_TRUE(r.late);
    EXPECT_GE(r.end_ns - r.scheduled_ns, stall_end - r.scheduled_ns);
  }
  EXPECT_GT(waited, 10);
  results::LoadRun whole{p.setup, {block}};
  EXPECT_GT(reports::load_report(whole).rows.at(0).ttft->p50.value, 40);
  EXPECT_GE(reports::load_report(whole).rows.at(0).late, waited);
  // The planted fault: times from the sending hide the stall from all but one request.
  for (results::LoadRequest& r : whole.blocks[0].requests) r.scheduled_ns = r.sent_ns;
  EXPECT_LT(reports::load_report(whole).rows.at(0).ttft->p50.value, 40);
}

TEST_F(Load, WaitsBeforeARetryCountAsLatency) {
  EndpointReply reply = reply_of({2, 3});
  reply.attempts = 3;
  const results::LoadRequest r = load_request_of(reply, 5, 10, 2'000'010 + 40'000'000);
  EXPECT_EQ(r.first_ns, 10 + 40'000'000 + 1'000'000);
  EXPECT_EQ(r.arrivals, (std::vector<results::LoadArrival>{{41'000'010, 2}, {42'000'010, 3}}));
  EXPECT_EQ(r.tokens, 5);
  EXPECT_EQ(r.attempts, 3);
}

TEST_F(Load, ServersTakeTurnsInBalancedOrder) {
  const LoadPlan p = plan({{1, 0}, {2, 0}}, 16, 2, 2, 4);
  ASSERT_EQ(p.setup.slices, (std::vector<int>{4, 4}));
  ASSERT_EQ(p.order.size(), 2u * 2 * 4 * 2);
  std::map<int, int> first;  // how often each server begins, by level
  for (size_t i = 0; i < p.order.size(); i += 2) {
    const results::LoadPlace &a = p.order[i], &b = p.order[i + 1];
    EXPECT_EQ(std::tie(a.repeat, a.level, a.slice), std::tie(b.repeat, b.level, b.slice));
    EXPECT_NE(a.server, b.server);
    if (a.server == 0) ++first[a.level];
  }
  EXPECT_EQ(first, (std::map<int, int>{{0, 4}, {1, 4}}));  // of 8 each
}

TEST_F(Load, SlicesCoverThePrompts) {
  EXPECT_EQ(slices_for(40, {1, 0}, 0), 4);
  EXPECT_EQ(slices_for(40, {4, 0}, 0), 2);
  EXPECT_EQ(slices_for(40, {16, 0}, 0), 1);
  EXPECT_EQ(slices_for(40, {64, 2}, 0), 4);
  EXPECT_EQ(slices_for(3, {64, 2}, 9), 1);
  size_t next = 0;
  for (int i = 0; i < 3; ++i) {
    const auto [begin, end] = slice_of(40, 3, i);
    EXPECT_EQ(begin, next);
    EXPECT_GT(end, begin);
    next = end;
  }
  EXPECT_EQ(next, 40u);
}

TEST_F(Load, GoesOnWhereItWasStopped) {
  const LoadPlan p = plan({{2, 0}}, 8, 2, 1, 4);  // four blocks of four
  std::atomic<bool> stop = false;
  tools_.stop = [&] { return stop.load(); };
  server_.answer_call = [&](int call) {
    if (call == 5) stop = true;
    return reply_of({1, 1});
  };
  const LoadOutcome first = run(p);
  EXPECT_EQ(first.status, LoadOutcome::Status::kInterrupted);
  EXPECT_EQ(first.blocks_left, 3);
  const results::LoadRun half = results::read_load_file(path());
  EXPECT_EQ(half.blocks.size(), 1u);
  EXPECT_GE(half.unfinished, 1);
  // As after kill -9: a line without its end.
  std::ofstream(path(), std::ios::app) << R"({"request":{"index":)";
  stop = false;
  server_.calls = 100;
  EXPECT_EQ(run(p).status, LoadOutcome::Status::kComplete);
  EXPECT_EQ(server_.calls, 112);  // three blocks
  const results::LoadRun whole = results::read_load_file(path());
  EXPECT_EQ(whole.blocks.size(), 4u);
  std::set<results::LoadPlace> places;
  for (const results::LoadBlock& block : whole.blocks) {
    places.insert(block.place);
    EXPECT_EQ(block.requests.size(), 4u);
    EXPECT_GT(block.wall_ns, 0);
  }
  EXPECT_EQ(places.size(), 4u);
  // Nothing is measured twice.
  EXPECT_EQ(run(p).status, LoadOutcome::Status::kComplete);
  EXPECT_EQ(server_.calls, 112);
}

TEST_F(Load, WhatIsReadIsWhatWasWritten) {
  server_.answer_call = [](int call) {
    EndpointReply reply = call == 0 ? fault_of(EndpointFault::kServerError) : reply_of({2, 0, 1});
    reply.counts.drafted = 4, reply.counts.accepted = 0;
    return reply;
  };
  const LoadPlan p = plan({{1, 0}, {4, 2.5}}, 2);
  results::LoadFile file(path(), p.setup);
  LoadBlockResult result =
      run_load_block({p.servers[0], p.setup.levels[0], p.prompts, {}, p.order[0]}, tools_, nullptr);
  file.begin(p.order[0]);
  for (const results::LoadRequest& r : result.block.requests) file.add(r);
  file.end(result.block);
  const results::LoadRun read = results::read_load_file(path());
  EXPECT_EQ(read.setup, p.setup);
  ASSERT_EQ(read.blocks.size(), 1u);
  EXPECT_EQ(read.blocks[0].requests, result.block.requests);
  EXPECT_EQ(read.blocks[0].requests[0].fault, to_string(EndpointFault::kServerError));
  EXPECT_EQ(read.blocks[0].requests[1].accepted, 0);
  EXPECT_EQ(read.unfinished, 0);
}

TEST_F(Load, AnotherLoadIsNotMixedIn) {
  run(plan({{1, 0}}, 2));
  const LoadPlan other = plan({{2, 0}}, 2);
  try {
    results::LoadFile(path(), other.setup);
    FAIL() << "levels differ";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kData);
    EXPECT_THAT(e.what(), HasSubstr("levels is "));
    EXPECT_THAT(e.what(), HasSubstr("--out"));
  }
  folder_.write("text.txt", "no result\n");
  EXPECT_THROW(results::read_load_file(folder_.file("text.txt")), base::Error);
}

TEST_F(Load, AServerThatDiesEndsTheLoad) {
  const LoadPlan p = plan({{2, 0}}, 8, 2, 1, 4);
  server_.answer_call = [&](int call) {
    if (call >= 6) {
      up_ = false;
      return fault_of(EndpointFault::kDown);
    }
    return reply_of({1, 1});
  };
  try {
    run(p);
    FAIL() << "the server is gone";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kData);
    EXPECT_THAT(e.what(), HasSubstr("http://127.0.0.1:1"));
    EXPECT_THAT(e.what(), HasSubstr("start the server"));
    EXPECT_THAT(e.what(), HasSubstr("goes on"));
  }
  EXPECT_LE(server_.calls, 8);  // it is not asked again and again
  EXPECT_EQ(results::read_load_file(path()).blocks.size(), 1u);
  up_ = true;
  server_.answer_call = [](int) { return reply_of({1, 1}); };
  EXPECT_EQ(run(p).status, LoadOutcome::Status::kComplete);
  EXPECT_EQ(results::read_load_file(path()).blocks.size(), 4u);
}

TEST_F(Load, AServerThatRefusesALotGoesOn) {
  server_.answer_call = [](int call) {
    return call % 2 == 0 ? fault_of(EndpointFault::kDown) : reply_of({1, 1});
  };
  EXPECT_EQ(run(plan({{1, 0}}, 6)).status, LoadOutcome::Status::kComplete);
  const reports::LoadReport report = reports::load_report(results::read_load_file(path()));
  EXPECT_EQ(report.rows.at(0).failed, 3);
  EXPECT_FALSE(reports::all_failed(report.rows[0]));
}

TEST_F(Load, TimeIsBounded) {
  server_.answer_call = [](int) { return reply_of({1, 1}, 20); };
  const LoadPlan p = plan({{1, 0}}, 50);
  results::LoadFile file(path(), p.setup);
  const LoadOutcome outcome =
      run_load(p, {.warmup = 0, .max_time_s = 0.05}, tools_, file, progress_);
  EXPECT_EQ(outcome.status, LoadOutcome::Status::kOutOfTime);
  EXPECT_LT(server_.calls, 10);
}

TEST_F(Load, ServersAreCheckedAndWarmedUp) {
  LoadPlan p = plan({{1, 0}}, 2, 2);
  check_load_servers(p, tools_);
  EXPECT_EQ(p.setup.servers[1].model, "tiny");
  EXPECT_EQ(p.servers[1].model, "tiny");
  results::LoadFile file(path(), p.setup);
  run_load(p, {.warmup = 3}, tools_, file, progress_);
  EXPECT_EQ(server_.calls, 3 * 2 + 2 * 2);
  EXPECT_EQ(server_.settled, 2 + 2) << "after warming up, and after a block";
  EXPECT_EQ(server_.asked[0], "a");
  EXPECT_EQ(server_.asked[3], "b");
  int64_t measured = 0;
  for (const results::LoadBlock& b : results::read_load_file(path()).blocks)
    measured += static_cast<int64_t>(b.requests.size());
  EXPECT_EQ(measured, 4);
  p.setup.ignore_eos = true;
  EXPECT_THROW(check_load_servers(p, tools_), base::Error);
  up_ = false;
  p.setup.ignore_eos = false;
  EXPECT_THROW(check_load_servers(p, tools_), base::Error);
}

template <typename F>
std::string refused(const F& f) {
  try {
    f();
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::kUsage);
    return e.what();
  }
  return "accepted";
}

TEST_F(Load, BadInputIsNamed) {
  const auto closed = [](const std::string& word) {
    return refused([&] { closed_levels(std::vector<std::string>{"1", word}, "--concurrency"); });
  };
  EXPECT_THAT(closed("0"), HasSubstr("--concurrency: '0'"));
  EXPECT_THAT(closed("two"), HasSubstr("'two'"));
  EXPECT_THAT(closed("1"), HasSubstr("1 client twice"));
  const auto open = [](const std::string& word) {
    return refused([&] { open_levels(std::vector<std::string>{word}, 8, "--rate"); });
  };
  EXPECT_THAT(open("0"), HasSubstr("--rate: '0'"));
  EXPECT_THAT(open("-1"), HasSubstr("'-1'"));
  EXPECT_THAT(open("fast"), HasSubstr("'fast'"));
  EXPECT_THAT(refused([&] { plan({{1, 0}}, 2, 0); }), HasSubstr("--endpoint"));
  EXPECT_THAT(refused([&] { plan({{1, 0}}, 0); }), HasSubstr("--tasks"));
  EXPECT_THAT(refused([&] { plan({}, 2); }), HasSubstr("--concurrency"));
  EXPECT_THAT(refused([&] { plan({{1, 0}}, 6000, 2); }), HasSubstr("12,000 requests"));
  EndpointSpec twice;
  twice.name = "a";
  EXPECT_THAT(refused([&] {
                results::LoadSetup setup;
                setup.levels = {{1, 0}};
                make_load_plan(setup, {twice, twice}, std::vector<LoadPrompt>(1), {});
              }),
              HasSubstr("'a'"));
}

}  // namespace
}  // namespace evalrun::runners
