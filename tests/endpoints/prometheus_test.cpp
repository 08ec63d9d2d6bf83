#include "runners/endpoints/prometheus.h"

#include <gtest/gtest.h>

namespace evalrun::runners {
namespace {

TEST(Prometheus, AddsSamplesOverLabels) {
  const PrometheusSamples samples = parse_prometheus(
      "# HELP a_total Things.\n"
      "# TYPE a_total counter\n"
      "a_total{engine=\"0\",model=\"m\"} 3.0\r\n"
      "a_total{engine=\"1\",model=\"m\"} 4\n"
      "\n"
      "vllm:b_total{q=\"} \\\" {\\\\\"} 1e+06 1395066363000\n"
      "  plain 2.5\n"
      "signed +7\n"
      "last -1");
  EXPECT_EQ(samples.bad_lines, 0);
  EXPECT_EQ(samples.find("a_total"), 7.0);
  EXPECT_EQ(samples.find("vllm:b_total"), 1e6);
  EXPECT_EQ(samples.find("plain"), 2.5);
  EXPECT_EQ(samples.find("signed"), 7.0);
  EXPECT_EQ(samples.find("last"), -1.0);
  EXPECT_EQ(samples.find("a"), std::nullopt);
}

TEST(Prometheus, WhatIsNoNumberIsNotFound) {
  const PrometheusSamples samples =
      parse_prometheus("a NaN\nb +Inf\nc -Inf\nd{x=\"1\"} NaN\nd 1\n");
  EXPECT_EQ(samples.bad_lines, 0);
  for (const char* name : {"a", "b", "c", "d"}) EXPECT_EQ(samples.find(name), std::nullopt);
}

TEST(Prometheus, CountsLinesThatAreNotOfTheFormat) {
  const PrometheusSamples samples =
      parse_prometheus("<html>\nname\nx{a=\"1\" 3\ny{} z\n{} 1\nw 1 soon\ngood 1\n");
  EXPECT_EQ(samples.bad_lines, 6);
  EXPECT_EQ(samples.sums.size(), 1u);
  EXPECT_EQ(samples.find("good"), 1.0);
  EXPECT_EQ(parse_prometheus("").bad_lines, 0);
}

TEST(Prometheus, RisesOfCounters) {
  const PrometheusSamples before = parse_prometheus("a 3\nb 5\nc 1\n");
  const PrometheusSamples after = parse_prometheus("a 10\nb 4\nd 1\n");
  EXPECT_EQ(counter_rise(before, after, "a"), 7.0);
  EXPECT_EQ(counter_rise(before, before, "a"), 0.0);
  EXPECT_EQ(counter_rise(before, after, "b"), std::nullopt);  // restarted
  EXPECT_EQ(counter_rise(before, after, "c"), std::nullopt);
  EXPECT_EQ(counter_rise(before, after, "d"), std::nullopt);
}

}  // namespace
}  // namespace evalrun::runners
