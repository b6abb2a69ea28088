#include "kv_events/zmq_socket.h"

#include <zmq.h>

#include <array>
#include <cerrno>

#include "base/check.h"

namespace tandem {
namespace {

Status FailedAddress(const char* what, const std::string& address) {
  const int error = zmq_errno();
  const bool wrong = error == EINVAL || error == EPROTONOSUPPORT || error == ENOCOMPATPROTO;
  return MakeError(wrong ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable, "cannot {} {}: {}", what,
                   address, zmq_strerror(error));
}

}  // namespace

Result<std::unique_ptr<ZmqSocket>> ZmqSocket::Create(int type) {
  void* context = zmq_ctx_new();
  TANDEM_CHECK(context != nullptr, "no context of ZeroMQ");
  void* socket = zmq_socket(context, type);
  if (socket == nullptr) {
    const int error = zmq_errno();
    zmq_ctx_term(context);
    TANDEM_CHECK(error != EINVAL, "ZeroMQ has no sockets of type {}", type);
    return MakeError(ErrorCode::kResourceExhausted, "no socket of ZeroMQ: {}", zmq_strerror(error));
  }
  std::unique_ptr<ZmqSocket> created(new ZmqSocket(context, socket));
  created->Set(ZMQ_LINGER, 0);
  return created;
}

ZmqSocket::~ZmqSocket() {
  zmq_close(socket_);
  zmq_ctx_term(context_);
}

void ZmqSocket::Set(int option, int value) {
  const int failed = zmq_setsockopt(socket_, option, &value, sizeof(value));
  TANDEM_CHECK(failed == 0, "option {} of ZeroMQ: {}", option, zmq_strerror(zmq_errno()));
}

void ZmqSocket::Set(int option, int64_t value) {
  const int failed = zmq_setsockopt(socket_, option, &value, sizeof(value));
  TANDEM_CHECK(failed == 0, "option {} of ZeroMQ: {}", option, zmq_strerror(zmq_errno()));
}

void ZmqSocket::AllowIpv6(const std::string& address) {
  if (address.find('[') != std::string::npos) Set(ZMQ_IPV6, 1);
}

Status ZmqSocket::Bind(const std::string& address) {
  AllowIpv6(address);
  return zmq_bind(socket_, address.c_str()) == 0 ? Status() : FailedAddress("bind", address);
}

Status ZmqSocket::Connect(const std::string& address) {
  AllowIpv6(address);
  return zmq_connect(socket_, address.c_str()) == 0 ? Status() : FailedAddress("connect to", address);
}

std::string ZmqSocket::address() const {
  std::array<char, 1100> text = {};
  size_t size = text.size();
  if (zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, text.data(), &size) != 0) return {};
  return text.data();
}

void ZmqSocket::Send(std::span<const std::span<const uint8_t>> frames) {
  for (size_t i = 0; i < frames.size(); ++i) {
    const int more = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
    if (zmq_send(socket_, frames[i].data(), frames[i].size(), ZMQ_DONTWAIT | more) < 0) return;
  }
}

std::vector<std::vector<uint8_t>> ZmqSocket::Receive() {
  std::vector<std::vector<uint8_t>> frames;
  zmq_msg_t frame;
  zmq_msg_init(&frame);
  bool more = true;
  while (more && zmq_msg_recv(&frame, socket_, ZMQ_DONTWAIT) >= 0) {
    const auto* data = static_cast<const uint8_t*>(zmq_msg_data(&frame));
    frames.emplace_back(data, data + zmq_msg_size(&frame));
    more = zmq_msg_more(&frame) != 0;
  }
  zmq_msg_close(&frame);
  return frames;
}

}  // namespace tandem
