#include "runners/cluster/socket_messages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <regex>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace evalrun::runners {
namespace {

class SocketMessages final : public Messages {
 public:
  explicit SocketMessages(const SocketPeers& peers) : peers_(peers) {}
  ~SocketMessages() override {
    for (const int fd : peers_.descriptors)
      if (fd >= 0) ::close(fd);
  }
  int rank() const override { return peers_.rank; }
  int size() const override { return peers_.size; }
  // To one that has ended: its end shows in poll().
  void send(int to, const std::string& text) override {
    const int fd = descriptor_of(to);
    while (fd >= 0 && ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
  }
  std::optional<Message> poll() override {
    for (size_t i = 0; i < peers_.descriptors.size(); ++i) {
      int& fd = peers_.descriptors[i];
      if (fd < 0) continue;
      const int from = peers_.rank == 0 ? static_cast<int>(i) + 1 : 0;
      std::string text(1 << 16, '\0');
      const ssize_t n = ::recv(fd, text.data(), text.size(), MSG_DONTWAIT);
      if (n > 0) {
        text.resize(static_cast<size_t>(n));
        return Message{.from = from, .text = std::move(text), .gone = false};
      }
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      ::close(fd);
      fd = -1;
      return Message{.from = from, .text = "", .gone = true};
    }
    return std::nullopt;
  }

 private:
  int descriptor_of(int to) const {
    const size_t i = peers_.rank == 0 ? static_cast<size_t>(to) - 1 : 0;
    EVALRUN_CHECK(to != peers_.rank && i < peers_.descriptors.size(), "rank {} sends to {}",
                  peers_.rank, to);
    return peers_.descriptors[i];
  }
  SocketPeers peers_;
};

}  // namespace

std::string to_text(const SocketPeers& peers) {
  return fmt::format("{}/{}:{}", peers.rank, peers.size, fmt::join(peers.descriptors, ","));
}

SocketPeers parse_socket_peers(const std::string& text) {
  static const std::regex form(R"((\d{1,4})/(\d{1,4}):((?:\d{1,5}(?:,\d{1,5})*)?))");
  std::smatch match;
  if (!std::regex_match(text, match, form))
    throw base::usage_error(fmt::format("--peers: '{}' is not RANK/SIZE:DESCRIPTORS", text),
                            "it is for processes that --devices starts");
  SocketPeers peers = {std::stoi(match[1]), std::stoi(match[2]), {}};
  for (const std::string& fd : base::split(match[3].str(), ','))
    if (!fd.empty()) peers.descriptors.push_back(std::stoi(fd));
  const auto needed = static_cast<size_t>(peers.rank == 0 ? peers.size - 1 : 1);
  if (peers.rank >= peers.size || peers.descriptors.size() != needed)
    throw base::usage_error(fmt::format("--peers: '{}' does not fit together", text),
                            "it is for processes that --devices starts");
  return peers;
}

std::vector<SocketPeers> make_socket_peers(int size) {
  std::vector<SocketPeers> peers;
  for (int rank = 0; rank < size; ++rank) peers.push_back({rank, size, {}});
  for (int rank = 1; rank < size; ++rank) {
    int ends[2];
    // Packets: a message arrives whole, and once.
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
      throw base::Error(base::ExitCode::kEnvironment,
                        fmt::format("no socket pair: {}", std::strerror(errno)),
                        "see the limits of this machine (ulimit -n)");
    peers.front().descriptors.push_back(ends[0]);
    peers[static_cast<size_t>(rank)].descriptors.push_back(ends[1]);
  }
  return peers;
}

std::unique_ptr<Messages> open_sockets(const SocketPeers& peers) {
  return std::make_unique<SocketMessages>(peers);
}

}  // namespace evalrun::runners
