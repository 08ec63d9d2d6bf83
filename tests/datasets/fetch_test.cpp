// Downloads from file:// and from a server of our own on the loopback interface; no network is
// used.
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "datasets/manifest.h"
#include "engine/base/text.h"
#include "tests/datasets/test_files.h"
#include "tests/loopback.h"

namespace evalrun::datasets {
namespace {

using base::ExitCode;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Answers one connection with fixed bytes, then closes it. Gives up by itself after ten seconds.
class OneShotServer {
 public:
  explicit OneShotServer(std::string response)
      : response_(std::move(response)), thread_([this] { serve(); }) {}
  ~OneShotServer() { thread_.join(); }
  std::string url() const { return fmt::format("http://127.0.0.1:{}/data", listener_.port()); }

 private:
  static bool readable(int fd) {
    pollfd p{fd, POLLIN, 0};
    return ::poll(&p, 1, 10000) == 1;
  }
  void serve() {
    if (!readable(listener_.fd())) return;
    const int connection = ::accept(listener_.fd(), nullptr, nullptr);
    std::string request;
    char buffer[1024];
    while (request.find("\r\n\r\n") == std::string::npos && readable(connection)) {
      const ssize_t n = ::read(connection, buffer, sizeof buffer);
      if (n <= 0) break;
      request.append(buffer, static_cast<size_t>(n));
    }
    tests::send_all(connection, response_);
    ::close(connection);
  }

  std::string response_;
  tests::LoopbackListener listener_{1};
  std::thread thread_;
};

std::string ok_response(std::string_view body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                     body.size(), body);
}

class Fetch : public ::testing::Test {
 protected:
  Fetch() {
    // The loopback server must be asked itself, whatever proxy the machine uses.
    for (const char* name :
         {"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})
      ::unsetenv(name);
    file_.dataset = "gsm8k";
    file_.path = "gsm8k/test.jsonl";
    file_.licence = "MIT";
    file_.bytes = static_cast<int64_t>(body_.size());
    file_.sha256 = base::sha256_hex(body_);
    options_.data_root = dir_.file("root");
    options_.connect_timeout_s = 5;
    options_.stall_timeout_s = 5;
  }
  std::string target() const { return dir_.file("root/gsm8k/test.jsonl"); }
  // Fails as it should, leaves neither target nor temporary file, and says what to do by hand.
  std::string refused() {
    const std::string text = error_of(ExitCode::kData, [&] { fetch_file(file_, options_); });
    expect_nothing_left();
    EXPECT_THAT(text, AllOf(HasSubstr(file_.url), HasSubstr(target()), HasSubstr(file_.sha256),
                            HasSubstr("by hand")));
    return text;
  }
  void expect_nothing_left() {
    size_t n_files = 0;
    for (const auto& item : std::filesystem::recursive_directory_iterator(dir_.file("root")))
      n_files += item.is_regular_file();
    EXPECT_EQ(n_files, 0u);
  }

  TempFolder dir_;
  std::string body_ = "{\"question\":\"q\",\"answer\":\"#### 1\"}\n";
  ManifestFile file_;
  FetchOptions options_;
};

TEST_F(Fetch, LocalFileThenAlreadyThere) {
  file_.url = "file://" + dir_.write("source", body_);
  int64_t last = -1;
  options_.progress = [&](const FetchProgress& p) {
    EXPECT_EQ(p.path, file_.path);
    EXPECT_EQ(p.total_bytes, file_.bytes);
    EXPECT_GE(p.done_bytes, last);
    last = p.done_bytes;
    return true;
  };
  const FetchResult first = fetch_file(file_, options_);
  EXPECT_EQ(first.outcome, FetchOutcome::kFetched);
  EXPECT_EQ(first.target, target());
  EXPECT_EQ(base::read_file(target()), body_);
  EXPECT_EQ(last, file_.bytes);

  std::filesystem::remove(dir_.file("source"));  // a second fetch must not need it
  EXPECT_EQ(fetch_file(file_, options_).outcome, FetchOutcome::kAlreadyThere);
}

TEST_F(Fetch, OverHttp) {
  OneShotServer server(ok_response(body_));
  file_.url = server.url();
  EXPECT_EQ(fetch_file(file_, options_).outcome, FetchOutcome::kFetched);
  EXPECT_EQ(base::read_file(target()), body_);
}

TEST_F(Fetch, WrongBytes) {
  std::string changed = body_;
  changed[3] ^= 1;
  OneShotServer server(ok_response(changed));
  file_.url = server.url();
  EXPECT_THAT(refused(), HasSubstr("the source has changed"));
}

TEST_F(Fetch, TooLongOrTooShort) {
  {
    OneShotServer server(ok_response(body_ + body_));
    file_.url = server.url();
    EXPECT_THAT(refused(), HasSubstr("more than"));
  }
  OneShotServer server(ok_response(body_.substr(1)));
  file_.url = server.url();
  EXPECT_THAT(refused(), HasSubstr(fmt::format("sent {} bytes", body_.size() - 1)));
}

TEST_F(Fetch, ConnectionBreaksInTheMiddle) {
  const std::string response = ok_response(body_);
  OneShotServer server(response.substr(0, response.size() - 10));
  file_.url = server.url();
  EXPECT_THAT(refused(), HasSubstr("cannot be downloaded"));
}

TEST_F(Fetch, HttpError) {
  OneShotServer server("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
  file_.url = server.url();
  EXPECT_THAT(refused(), HasSubstr("404"));
}

TEST_F(Fetch, NoServer) {
  file_.url = "http://127.0.0.1:1/data";  // port 1: nobody listens
  EXPECT_THAT(refused(), HasSubstr("cannot be downloaded"));
}

TEST_F(Fetch, OtherProtocolsAreRefused) {
  file_.url = "gopher://127.0.0.1/data";
  EXPECT_THAT(refused(), HasSubstr("cannot be downloaded"));
}

TEST_F(Fetch, AnotherFileIsKeptUnlessForced) {
  file_.url = "file://" + dir_.write("source", body_);
  const std::string own = "{\"question\":\"own\",\"answer\":\"#### 2\"}\n";
  dir_.write("root/gsm8k/test.jsonl", own);
  EXPECT_THAT(error_of(ExitCode::kUsage, [&] { fetch_file(file_, options_); }),
              AllOf(HasSubstr(target()), HasSubstr("--force")));
  EXPECT_EQ(base::read_file(target()), own);
  options_.force = true;
  EXPECT_EQ(fetch_file(file_, options_).outcome, FetchOutcome::kFetched);
  EXPECT_EQ(base::read_file(target()), body_);
}

TEST_F(Fetch, FailedDownloadKeepsTheOldFile) {
  file_.url = "file://" + dir_.file("no such source");
  dir_.write("root/gsm8k/test.jsonl", "old\n");
  options_.force = true;
  error_of(ExitCode::kData, [&] { fetch_file(file_, options_); });
  EXPECT_EQ(base::read_file(target()), "old\n");
}

TEST_F(Fetch, StopsWhenAsked) {
  file_.url = "file://" + dir_.write("source", body_);
  options_.progress = [](const FetchProgress&) { return false; };
  error_of(ExitCode::kInterrupted, [&] { fetch_file(file_, options_); });
  expect_nothing_left();
}

TEST_F(Fetch, FolderThatCannotBeWritten) {
  file_.url = "file://" + dir_.write("source", body_);
  dir_.write("root", "a file where the data root should be");
  EXPECT_THAT(error_of(ExitCode::kData, [&] { fetch_file(file_, options_); }),
              HasSubstr("cannot write"));
}

TEST_F(Fetch, NamesAndRoots) {
  EXPECT_THAT(error_of(ExitCode::kUsage, [&] { fetch_dataset("gsm8", options_); }),
              HasSubstr("did you mean 'gsm8k'"));
  EXPECT_THAT(error_of(ExitCode::kUsage, [&] { fetch_dataset("cip", options_); }),
              AllOf(HasSubstr("cannot be fetched"), HasSubstr("Parquet")));
  error_of(ExitCode::kUsage, [&] { fetch_dataset("cip_standin", options_); });
  options_.data_root.clear();
  EXPECT_THAT(error_of(ExitCode::kUsage, [&] { fetch_dataset("gsm8k", options_); }),
              HasSubstr("--data-root"));
}

}  // namespace
}  // namespace evalrun::datasets
