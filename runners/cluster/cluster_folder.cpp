#include "runners/cluster/cluster_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::runners {

namespace fs = std::filesystem;

std::string ClusterFolder::log(int shard) const {
  return fmt::format("{}/logs/{}.log", path_, shard);
}

std::string ClusterFolder::database(int shard, int shards) const {
  return fmt::format("{}/shards/{}-of-{}.db", path_, shard, shards);
}

void ClusterFolder::create(const ClusterPlan& plan) const {
  std::error_code error;
  if (fs::exists(plan_file(), error))
    throw base::usage_error(fmt::format("{} holds a run already", path_),
                            fmt::format("follow it with `evalrun cluster status {}`, submit what "
                                        "is missing with `evalrun cluster resubmit {}`, or name "
                                        "another folder",
                                        path_, path_));
  for (const char* room : {"shards", "logs"}) {
    fs::create_directories(fs::path(path_) / room, error);
    if (error)
      throw base::data_error(path_, room, fmt::format("cannot be made: {}", error.message()),
                             "name a folder that you may write to and that every node sees");
  }
  save(plan);
}

void ClusterFolder::save(const ClusterPlan& plan) const {
  nlohmann::ordered_json jobs = nlohmann::json::array();
  for (const SubmittedJob& job : plan.jobs)
    jobs.push_back({{"id", job.id}, {"shards", job.shards}});
  const nlohmann::ordered_json json = {{"scheduler", plan.scheduler}, {"shards", plan.shards},
                                       {"program", plan.program},     {"run", plan.words},
                                       {"options", plan.options},     {"store", plan.store},
                                       {"local", plan.local},         {"jobs", jobs}};
  base::write_file_atomic(plan_file(), json.dump(2) + "\n");
}

ClusterPlan ClusterFolder::load() const {
  std::error_code ignored;
  if (!fs::exists(plan_file(), ignored))
    throw base::data_error(path_, "", "holds no run of a cluster: there is no cluster.json",
                           "name the --folder of `evalrun cluster submit`");
  try {
    const nlohmann::json json = nlohmann::json::parse(base::read_file(plan_file()));
    ClusterPlan plan;
    json.at("scheduler").get_to(plan.scheduler);
    json.at("shards").get_to(plan.shards);
    json.at("program").get_to(plan.program);
    json.at("run").get_to(plan.words);
    json.at("options").get_to(plan.options);
    json.at("store").get_to(plan.store);
    json.at("local").get_to(plan.local);
    for (const nlohmann::json& job : json.at("jobs"))
      plan.jobs.push_back(
          {job.at("id").get<std::string>(), job.at("shards").get<std::vector<int>>()});
    if (plan.shards < 1)
      throw base::data_error(plan_file(), "shards",
                             fmt::format("is {}, not 1 or more", plan.shards),
                             "restore the file, or submit again into another folder");
    return plan;
  } catch (const nlohmann::json::exception& e) {
    throw base::data_error(plan_file(), "", fmt::format("is broken: {}", e.what()),
                           "restore the file, or submit again into another folder");
  }
}

}  // namespace evalrun::runners
