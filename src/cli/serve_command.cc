#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <functional>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/open_file_limit.h"
#include "cli/commands.h"
#include "cli/server_signals.h"
#include "engine/engine.h"
#include "server/server.h"

namespace tandem {
namespace {

// How far stopping has come; shared by the main and the signal thread.
class StopState {
 public:
  // Signal thread. False while there is nothing to finish: the signal may end the process.
  bool OnSignal(int count) {
    const std::lock_guard lock(mutex_);
    if (engine_ == nullptr || count > 2) return false;
    if (count == 1) {
      LogInfo("draining: answers under way finish, new requests get 503; a second signal stops at once");
    } else {
      LogInfo("stopping at once");
      at_once_ = true;
    }
    num_signals_ = count;
    changed_.notify_all();
    return true;
  }

  void SetEngine(Engine* engine) {
    const std::lock_guard lock(mutex_);
    engine_ = engine;
  }

  void WaitForSignals(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_signals_ >= count || released_; });
  }

  // False if there is none within the time.
  bool WaitForSignal(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return num_signals_ > 0; });
  }

  void Release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

  bool at_once() const { return at_once_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Engine* engine_ = nullptr;
  int num_signals_ = 0;
  bool released_ = false;
  std::atomic<bool> at_once_{false};
};

// The server that SIGHUP is for, while there is one.
class ReloadTarget {
 public:
  // Signal thread. False: there is nothing to reload.
  bool Reload() {
    const std::lock_guard lock(mutex_);
    return server_ != nullptr && server_->Reload();
  }

  // While it lives, SIGHUP finds the server.
  class Scope {
   public:
    Scope(ReloadTarget* target, Server* server) : target_(target) { target_->Set(server); }
    ~Scope() { target_->Set(nullptr); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ReloadTarget* target_;
  };

 private:
  void Set(Server* server) {
    const std::lock_guard lock(mutex_);
    server_ = server;
  }

  std::mutex mutex_;
  Server* server_ = nullptr;
};

void DrainAndStop(Engine* engine, Server* server, StopState* stop_state) {
  constexpr std::chrono::milliseconds kLastBytes{10'000};  // for clients to take the end of their answers
  constexpr std::chrono::milliseconds kLastErrors{200};
  server->BeginDrain();
  std::thread canceller([&] {
    stop_state->WaitForSignals(2);
    if (stop_state->at_once()) engine->CancelAll();
  });
  engine->Drain();
  const auto deadline = std::chrono::steady_clock::now() + kLastBytes;
  constexpr std::chrono::milliseconds kStep{20};
  while (!stop_state->at_once() && std::chrono::steady_clock::now() < deadline &&
         !server->WaitUntilIdle(kStep)) {
  }
  if (stop_state->at_once()) server->WaitUntilIdle(kLastErrors);
  stop_state->Release();
  canceller.join();
  server->Stop();
}

}  // namespace

Status Serve(const ServeOptions& options) {
  // Files besides the connections: the program's own, and those of the model.
  constexpr int64_t kOtherFiles = 256;
  std::signal(SIGPIPE, SIG_IGN);
  RaiseOpenFileLimit(static_cast<int64_t>(options.server.http.max_connections) + kOtherFiles);
  StopState stop_state;
  ReloadTarget reload_target;
  const ServerSignals signals([&](int count) { return stop_state.OnSignal(count); },
                              [&] { return reload_target.Reload(); });
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Start(options.server));
  const ReloadTarget::Scope served(&reload_target, server.get());
  LogInfo("loading {}; until then {} answers 503", options.engine.served_model_name, server->url());
  auto created = Engine::Create(options.engine);
  if (!created.ok()) {
    server->Stop();
    return created.error();
  }
  std::unique_ptr<Engine> engine = std::move(created).value();
  stop_state.SetEngine(engine.get());
  server->SetEngine(engine.get());
  fmt::print("tandem: {} is ready at {}\n", options.server.served_model_name, server->url());
  std::fflush(stdout);
  // An engine that has lost a shard serves nobody any more; whoever has started this process can start it
  // anew.
  constexpr std::chrono::milliseconds kLook{100};
  while (!stop_state.WaitForSignal(kLook) && !engine->failure()) {
  }
  DrainAndStop(engine.get(), server.get(), &stop_state);
  if (auto failure = engine->failure()) {
    // Its streams may wait for what never comes.
    static_cast<void>(engine.release());
    return *std::move(failure);
  }
  return {};
}

}  // namespace tandem
