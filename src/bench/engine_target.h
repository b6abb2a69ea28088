// An engine in this process as what works a benchmark's requests off.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/request_recorder.h"
#include "bench/request_target.h"
#include "engine/engine.h"

namespace tandem {

class EngineTarget final : public RequestTarget {
 public:
  // The engine outlives the target. io and recorder are shared with the engine's thread: a last callback may
  // still be returning when everything has ended.
  EngineTarget(Engine* engine, const std::vector<WorkloadRequest>& requests,
               std::shared_ptr<boost::asio::io_context> io, std::shared_ptr<RequestRecorder> recorder,
               RequestEndCallback on_end);

  void SetPrompt(int64_t index, std::vector<int32_t> tokens) override;
  void Send(int64_t index) override;
  void Cancel(int64_t index) override;
  void Close() override {}

 private:
  Engine* const engine_;
  std::vector<RequestSpec> requests_;  // without a prompt until it is set
  std::vector<RequestId> ids_;
  const std::shared_ptr<boost::asio::io_context> io_;
  const std::shared_ptr<RequestRecorder> recorder_;
  const RequestEndCallback on_end_;
};

}  // namespace tandem
