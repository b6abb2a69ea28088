// A socket of ZeroMQ with its context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace tandem {

// One thread at a time. Whatever has not been sent when it is destroyed is lost.
class ZmqSocket {
 public:
  // type: ZMQ_PUB, ZMQ_ROUTER, ... CHECKs that there is such a type. Errors: kResourceExhausted.
  static Result<std::unique_ptr<ZmqSocket>> Create(int type);
  ~ZmqSocket();
  ZmqSocket(const ZmqSocket&) = delete;
  ZmqSocket& operator=(const ZmqSocket&) = delete;

  // ZeroMQ's own, for zmq_poll.
  void* handle() { return socket_; }
  // CHECKs that there is such an option.
  void Set(int option, int value);
  void Set(int option, int64_t value);
  // Errors: kInvalidArgument, kUnavailable; without param.
  Status Bind(const std::string& address);
  Status Connect(const std::string& address);
  // Of the last Bind or Connect, with the port that was found for "*".
  std::string address() const;

  // A message of so many frames, without waiting: what there is no room for is dropped, and so is what nobody
  // has subscribed to.
  void Send(std::span<const std::span<const uint8_t>> frames);
  // The next message; empty: none has come.
  std::vector<std::vector<uint8_t>> Receive();

 private:
  ZmqSocket(void* context, void* socket) : context_(context), socket_(socket) {}
  // "*" alone means IPv4.
  void AllowIpv6(const std::string& address);

  void* context_;
  void* socket_;
};

}  // namespace tandem
