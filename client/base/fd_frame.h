// The fd channel: small messages with at most one file descriptor each, over a SOCK_SEQPACKET Unix
// socket.
//
// gRPC cannot carry file descriptors, so they travel here. One message is one datagram: a 16-byte
// header and up to kMaxPayloadBytes of payload, host byte order (both ends are one machine).
//
//   client                    daemon
//   kHello {}                 kWelcome {token[16], incarnation u64, resumable u8}
//                             opens a session
//   kHello {token[16]}        the same: resumes the session, for the same process only.
//                             UNAUTHENTICATED: this daemon does not know it
//   kRedeem {ticket[16]}      kGrant {} + fd: for a ticket from ExportSlabs
//   kOffer {} + fd            kOffered {offer[16]}: for CreateWindow's external memory
//   kEnd {}                   kEnded {}: the session has ended, as a next daemon knows. Closes
//
// Every answer may be a code and a text instead.
//
// The connection is the session's life line: when the client ends it, the daemon takes the session
// for lost. One that dies right then may not have recorded that, so who lives on says kEnd before.
// `resumable` 1: this daemon's state outlives it. If the daemon ends the connection, the
// client should come back with its token and will find the same token and incarnation; tickets and
// offers are void by then.
//
// The daemon and its keeper (daemon/keeper) speak in the same frames. A keeper serves daemons of
// other versions than its own, so these never change their meaning:
//
//   daemon              keeper
//                       kReady {limit u64}, or code and text       once, when it was connected
//   kKeep {name} + fd   nothing                                    instead of an older one
//   kDrop {name}        nothing
//   kList {}            kKept {name} + fd for each, then kListEnd
//
// The descriptor named kLingerName is a file, written at any time: its first 8 bytes say for how
// many ms (u64) the keeper is to hold on when there is no daemon and no session's process lives.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/base/unique.h"

namespace cco {

enum class FdFrameType : uint16_t {
  kHello = 1,
  kRedeem = 2,
  kOffer = 3,
  kEnd = 4,
  kKeep = 33,
  kDrop = 34,
  kList = 35,
  kWelcome = 129,
  kGrant = 130,
  kOffered = 131,
  kEnded = 132,
  kReady = 161,
  kKept = 162,
  kListEnd = 163,
};

inline constexpr uint32_t kFdFrameMagic = 0x314f4343;  // "CCO1"
inline constexpr size_t kMaxPayloadBytes = 1024;
inline constexpr size_t kSecretBytes = 16;  ///< Tokens, tickets, offers.
inline constexpr int kMaxSocketPathBytes = 107;
inline constexpr char kLingerName[] = "linger";

struct FdFrame {
  FdFrameType type{};
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string payload;  ///< As above; the message's text when `code` is not OK.
  UniqueFd fd;
};

/// Sends one frame; never raises SIGPIPE. `fd` is duplicated into the message, if given.
/// UNAVAILABLE: the other side is gone, or (non-blocking sockets) does not read.
/// RESOURCE_EXHAUSTED: no room.
absl::Status send_frame(BorrowedFd socket, FdFrameType type, absl::StatusCode code,
                        std::string_view payload, const UniqueFd* fd = nullptr);
absl::Status send_frame(BorrowedFd socket, FdFrameType type, std::string_view payload,
                        BorrowedFd fd);

/// Sends one datagram, `head` and then `body`, as send_frame() does.
absl::Status send_datagram(BorrowedFd socket, std::string_view head, std::string_view body,
                           std::optional<BorrowedFd> fd);

/// Takes one frame that is ready, or waits for one on a blocking socket.
/// UNAVAILABLE        end of stream, or nothing ready on a non-blocking socket (message "would
/// block") INVALID_ARGUMENT   not a frame of ours: too short, too long, wrong magic, more than one
/// fd; all fds are closed RESOURCE_EXHAUSTED the frame came but the kernel dropped its fd: this
/// process is at its descriptor limit
absl::StatusOr<FdFrame> receive_frame(BorrowedFd socket);

/// Waits until `socket` can be read. DEADLINE_EXCEEDED after `timeout`.
absl::Status wait_readable(BorrowedFd socket, std::chrono::milliseconds timeout);

/// A close-on-exec Unix socket connected to `path`. The message says why not, and what to check.
/// `timeout` bounds the wait for room in the listener's queue, and later each blocking send.
/// INVALID_ARGUMENT: the path is over 107 bytes. NOT_FOUND, UNAVAILABLE, PERMISSION_DENIED: see the
/// message.
absl::StatusOr<UniqueFd> connect_unix(
    const std::string& path, int socket_type,
    std::chrono::milliseconds timeout = std::chrono::milliseconds(5000));

/// Path of the fd channel that belongs to an RPC socket: "/run/cco/memd.sock" ->
/// "/run/cco/memd-fd.sock".
std::string fd_socket_path(const std::string& rpc_socket_path);

/// INVALID_ARGUMENT, naming the length and the limit, unless both sockets' paths fit into a
/// sockaddr_un.
absl::Status check_socket_path(const std::string& rpc_socket_path);

/// `count` bytes from the kernel's generator.
std::string random_bytes(size_t count);

}  // namespace cco
