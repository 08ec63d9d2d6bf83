// Server-sent events: the examples of the standard, and streams cut at every place.
#include "engine/net/event_stream.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evalrun::tests {
namespace {

using net::Event;
using net::EventStream;
using ::testing::ElementsAre;
using ::testing::Pair;

using Events = std::vector<std::pair<std::string, std::string>>;  // name and data

// Fed in pieces that begin at 0, `cut` and `second_cut`.
Events events_of(std::string_view bytes, size_t cut = 0, size_t second_cut = 0) {
  Events events;
  const auto take = [&](const Event& event) {
    events.emplace_back(event.name, event.data);
    return true;
  };
  EventStream stream;
  const size_t second = std::max(cut, second_cut);
  EXPECT_TRUE(stream.feed(bytes.substr(0, cut), take));
  EXPECT_TRUE(stream.feed(bytes.substr(cut, second - cut), take));
  EXPECT_TRUE(stream.feed(bytes.substr(second), take));
  return events;
}

// The examples of WHATWG HTML, section 9.2.6.
TEST(EventStream, ExamplesOfTheStandard) {
  EXPECT_THAT(events_of("data: YHOO\ndata: +2\ndata: 10\n\n"),
              ElementsAre(Pair("", "YHOO\n+2\n10")));
  EXPECT_THAT(
      events_of(": test stream\n\ndata: first event\nid: 1\n\n"
                "data:second event\nid\n\ndata:  third event\n\n"),
      ElementsAre(Pair("", "first event"), Pair("", "second event"), Pair("", " third event")));
  EXPECT_THAT(events_of("data\n\ndata\ndata\n\ndata:"), ElementsAre(Pair("", ""), Pair("", "\n")))
      << "the last block has no blank line behind it";
  EXPECT_THAT(events_of("data:test\n\ndata: test\n\n"),
              ElementsAre(Pair("", "test"), Pair("", "test")));
}

TEST(EventStream, NamesGoWithTheirEventAlone) {
  EXPECT_THAT(events_of("event: error\ndata: a\n\ndata: b\n\nevent: lost\n\ndata: c\n\n"),
              ElementsAre(Pair("error", "a"), Pair("", "b"), Pair("", "c")));
  EXPECT_THAT(events_of("event: one\nevent: two\ndata: a\n\n"), ElementsAre(Pair("two", "a")));
}

TEST(EventStream, LineEndsCommentsAndUnknownFields) {
  for (const char* end : {"\n", "\r", "\r\n"}) {
    std::string text;
    for (const char* line : {"data: a", ": comment", "retry: 10", "Data: no", "data", "data: b:c",
                             "", "", ":", "data: [DONE]", ""})
      text.append(line).append(end);
    EXPECT_THAT(events_of(text), ElementsAre(Pair("", "a\n\nb:c"), Pair("", "[DONE]")))
        << ::testing::PrintToString(end);
  }
}

TEST(EventStream, AMarkOfByteOrderOnlyAtTheBeginning) {
  EXPECT_THAT(events_of("\xEF\xBB\xBF"
                        "data: a\n\n\xEF\xBB\xBF"
                        "data: b\n\ndata: c\n\n"),
              ElementsAre(Pair("", "a"), Pair("", "c")));
}

// A carriage return ends its line at once: nobody waits for the byte behind it.
TEST(EventStream, AnEventIsThereWithItsLastByte) {
  EventStream stream;
  int events = 0;
  const auto count = [&](const Event&) { return ++events > 0; };
  for (const char* piece : {"data: a\r", "\n\r", "\ndata: b\n", "\n"}) {
    const int before = events;
    ASSERT_TRUE(stream.feed(piece, count));
    EXPECT_EQ(events - before, std::string_view(piece) == "\n\r" || std::string_view(piece) == "\n")
        << ::testing::PrintToString(piece);
  }
  EXPECT_EQ(events, 2);
}

TEST(EventStream, EveryPairOfCutsGivesTheSameEvents) {
  // Characters of two to four bytes, all line ends, a comment, names.
  const std::string text =
      "\xEF\xBB\xBF"
      ": hi\r\nevent: x\r\ndata: \xC3\xA9\xE2\x82\xAC\r\n\r\n"
      "data: \xF0\x9F\x98\x80\rdata:\r\rdata: z\n\nid: 3\n\ndata: {\"a\": 1}\r\n\n";
  const Events whole = events_of(text);
  ASSERT_EQ(whole.size(), 4u);
  EXPECT_EQ(whole.front(), std::pair(std::string("x"), std::string("\xC3\xA9\xE2\x82\xAC")));
  for (size_t cut = 0; cut <= text.size(); ++cut)
    for (size_t second = cut; second <= text.size(); ++second)
      ASSERT_EQ(events_of(text, cut, second), whole) << cut << " and " << second;
}

TEST(EventStream, WhatIsLeftAtTheEnd) {
  const auto rest_of = [](std::string_view text) {
    EventStream stream;
    stream.feed(text, [](const Event&) { return true; });
    return stream.has_rest();
  };
  EXPECT_FALSE(rest_of(""));
  EXPECT_FALSE(rest_of("data: a\n\n"));
  EXPECT_FALSE(rest_of("data: a\r\r"));
  EXPECT_FALSE(rest_of(": comment\n"));
  EXPECT_TRUE(rest_of("data: a\n\ndata: b\n"));
  EXPECT_TRUE(rest_of("data: a\n\nda"));
  EXPECT_TRUE(rest_of("event: x\n"));
}

TEST(EventStream, NothingIsReadOnceTheReceiverHasHadEnough) {
  EventStream stream;
  std::vector<std::string> seen;
  const auto until_b = [&](const Event& event) {
    seen.push_back(event.data);
    return event.data != "b";
  };
  EXPECT_FALSE(stream.feed("data: a\n\ndata: b\n\ndata: c\n\n", until_b));
  EXPECT_FALSE(stream.feed("data: d\n\n", until_b));
  EXPECT_THAT(seen, ElementsAre("a", "b"));
  EXPECT_FALSE(stream.too_long());
}

TEST(EventStream, EventsThatAreTooLong) {
  const auto none = [](const Event&) { return true; };
  std::vector<std::string> seen;
  const auto keep = [&](const Event& event) {
    seen.push_back(event.data);
    return true;
  };
  EventStream fits(16);
  EXPECT_TRUE(fits.feed("data: 0123456789\n\ndata: 0123456789\n\n", keep));
  EXPECT_THAT(seen, ElementsAre("0123456789", "0123456789"));

  // A line without an end, in many pieces.
  EventStream line(1000);
  int pieces = 0;
  while (line.feed(std::string(10, 'x'), none) && pieces < 1000) ++pieces;
  EXPECT_EQ(pieces, 100);
  EXPECT_TRUE(line.too_long());
  EXPECT_FALSE(line.feed("\n\ndata: a\n\n", none));

  // An event of lines without an end.
  EventStream lines(1000);
  pieces = 0;
  while (lines.feed("data: 4567\n", none) && pieces < 1000) ++pieces;
  EXPECT_NEAR(pieces, 198, 3);  // "4567" and a line end each
  EXPECT_TRUE(lines.too_long());

  // Comments are forgotten: any number of them.
  EventStream comments(1000);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(comments.feed(": still alive\n\n", none));
}

}  // namespace
}  // namespace evalrun::tests
