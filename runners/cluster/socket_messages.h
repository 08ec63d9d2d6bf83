// Messages between processes that one process has started on this machine: a socket between the
// first of them and each of the others.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runners/cluster/messages.h"

namespace evalrun::runners {

// What the process `rank` of `size` is handed: its ends of the sockets, open descriptors. Rank 0
// has those to 1, 2, ...; every other rank has the one to 0.
struct SocketPeers {
  int rank = 0, size = 1;
  std::vector<int> descriptors;
};
// "1/4:7", for a command line. Throws usage_error for anything else.
std::string to_text(const SocketPeers& peers);
SocketPeers parse_socket_peers(const std::string& text);

// By rank. Descriptors are closed on exec; who starts a process says which it keeps. Throws
// kEnvironment.
std::vector<SocketPeers> make_socket_peers(int size);

std::unique_ptr<Messages> open_sockets(const SocketPeers& peers);

}  // namespace evalrun::runners
