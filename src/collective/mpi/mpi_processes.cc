#include "collective/mpi/mpi_processes.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/topology.h"
#include "collective/mpi/mpi_collective.h"
#include "collective/mpi/mpi_wait.h"

namespace tandem {
namespace {

constexpr int kMessageTag = 0;

// A process of this host, for asking the kernel whether it is alive.
struct HostProcess {
  int32_t rank = 0;
  int32_t pid = 0;
  uint64_t pid_namespace = 0;  // pids of others mean nothing here
};

HostProcess ThisProcess(int rank) {
  struct stat status = {};
  const bool known = stat("/proc/self/ns/pid", &status) == 0;
  return {.rank = rank, .pid = getpid(), .pid_namespace = known ? status.st_ino : 0};
}

// Open MPI 4 says that a connection broke by asking the daemon of its host to print it, and waits for the
// answer with the connection locked, on whichever thread was looking. The daemon answers nobody while it
// kills the processes of a job in which one has died: the pulse would stand still until rank 0 is killed too.
// What broke is said by Pulse.
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION == 4
int SayNothing(const char* /*file*/, const char* /*topic*/, bool /*has_header*/, ...) {
  return 0;
}
void SilenceHelp() {
  if (void* const variable = dlsym(RTLD_DEFAULT, "opal_show_help"))
    *static_cast<decltype(&SayNothing)*>(variable) = SayNothing;
}
#else
void SilenceHelp() {}
#endif

// Every process tells rank 0, and rank 0 all others, that it is alive, or why it is not going on.
class Pulse {
 public:
  Pulse(MPI_Comm communicator, Shard shard, std::vector<HostProcess> neighbours,
        const ProcessesOptions& options, ExchangeState* state)
      : communicator_(communicator),
        shard_(shard),
        neighbours_(std::move(neighbours)),
        longest_silence_(options.silence),
        on_stuck_(options.on_stuck),
        state_(state),
        thread_([this] { ThreadMain(); }) {}
  // Only where all have agreed to end, or none of it matters any more.
  ~Pulse() {
    stops_ = true;
    thread_.join();
  }
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

 private:
  static constexpr std::chrono::milliseconds kLook{100};
  // A look counts for no more: whoever was stopped himself has heard nobody.
  static constexpr std::chrono::milliseconds kLongestLook{500};

  struct Beat {
    std::array<char, 504> reason{};  // empty: all is well
    int64_t is_last = 0;
  };
  struct Peer {
    int rank = 0;
    Beat sent, received;
    MPI_Request sending = MPI_REQUEST_NULL;
    MPI_Request receiving = MPI_REQUEST_NULL;
    std::chrono::nanoseconds silent{0};
    bool has_left = false;
  };

  static bool Ended(MPI_Request* request) {
    int ended = 0;
    CheckMpi(MPI_Test(request, &ended, MPI_STATUS_IGNORE), "MPI_Test");
    return ended != 0;
  }

  void Listen(Peer* peer) {
    CheckMpi(MPI_Irecv(&peer->received, sizeof(Beat), MPI_BYTE, peer->rank, kMessageTag, communicator_,
                       &peer->receiving),
             "MPI_Irecv");
  }

  void Tell(Peer* peer, const Beat& beat) {
    peer->sent = beat;
    CheckMpi(MPI_Isend(&peer->sent, sizeof(Beat), MPI_BYTE, peer->rank, kMessageTag, communicator_,
                       &peer->sending),
             "MPI_Isend");
  }

  void Hear(Peer* peer) {
    while (!peer->has_left && Ended(&peer->receiving)) {
      peer->silent = std::chrono::nanoseconds(0);
      if (peer->received.reason.front() != 0) state_->Abort(peer->received.reason.data());
      peer->has_left = peer->received.is_last != 0;
      if (!peer->has_left) Listen(peer);
    }
  }

  void CheckNeighbours() {
    for (const HostProcess& each : neighbours_) {
      const auto peer = std::ranges::find(peers_, each.rank, &Peer::rank);
      if (peer != peers_.end() && peer->has_left) continue;
      if (kill(each.pid, 0) == 0 || errno != ESRCH) continue;
      // What it has said at its end counts.
      if (peer != peers_.end()) Hear(&*peer);
      if (peer != peers_.end() && peer->has_left) continue;
      state_->Abort(fmt::format("shard {} of {} has ended: its process is gone", each.rank, shard_.size));
    }
  }

  void ThreadMain() {
    SetThreadName("pulse");
    for (int rank = 0; rank < shard_.size; ++rank) {
      if (rank != shard_.rank && (rank == 0 || shard_.rank == 0)) peers_.push_back({.rank = rank});
    }
    for (Peer& peer : peers_) Listen(&peer);
    auto last = std::chrono::steady_clock::now();
    while (!stops_ && !state_->aborted()) {
      for (Peer& peer : peers_) {
        if (Ended(&peer.sending)) Tell(&peer, {});
        Hear(&peer);
      }
      CheckNeighbours();
      std::this_thread::sleep_for(kLook);
      const auto now = std::chrono::steady_clock::now();
      for (Peer& peer : peers_) {
        peer.silent += std::min<std::chrono::nanoseconds>(now - last, kLongestLook);
        if (peer.has_left || peer.silent < longest_silence_) continue;
        Hear(&peer);
        if (peer.silent < longest_silence_) continue;
        state_->Abort(fmt::format("shard {} of {} has not been heard of for {:g} s", peer.rank, shard_.size,
                                  std::chrono::duration<double>(longest_silence_).count()));
      }
      last = now;
    }
    SayLast();
  }

  void SayLast() {
    Beat beat;
    beat.is_last = 1;
    if (const auto reason = state_->reason())
      std::strncpy(beat.reason.data(), reason->c_str(), beat.reason.size() - 1);
    // Of those who are gone nobody takes it.
    constexpr std::chrono::milliseconds kGrace{300};
    const auto deadline = std::chrono::steady_clock::now() + kGrace;
    const auto wait = [&](const auto& is_done) {
      while (!std::ranges::all_of(peers_, is_done) && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    wait([](Peer& peer) { return Ended(&peer.sending); });
    for (Peer& peer : peers_) {
      if (peer.sending == MPI_REQUEST_NULL) Tell(&peer, beat);
    }
    wait([](Peer& peer) { return Ended(&peer.sending); });
    if (state_->aborted()) {
      constexpr std::chrono::seconds kTimeToEnd{3};
      if (shard_.rank == 0 || !on_stuck_) return;
      std::this_thread::sleep_for(kTimeToEnd);
      return on_stuck_();
    }
    // So that MPI has nothing under way at its end.
    const auto all_left = [this] {
      return std::ranges::all_of(peers_, [this](Peer& peer) {
        Hear(&peer);
        return peer.has_left && Ended(&peer.sending);
      });
    };
    if (!AwaitMpi(*state_, longest_silence_, all_left)) state_->Abort("the shards have not come to one end");
  }

  const MPI_Comm communicator_;
  const Shard shard_;
  const std::vector<HostProcess> neighbours_;  // of the peers, those whose pid says whether they are alive
  const std::chrono::milliseconds longest_silence_;
  const std::function<void()> on_stuck_;
  ExchangeState* const state_;
  std::vector<Peer> peers_;  // the thread's own; does not grow once there are requests
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

class MpiGroup : public CollectiveGroup {
 public:
  MpiGroup(Shard shard, std::chrono::milliseconds timeout, ExchangeState* state)
      : shard_(shard), state_(state) {
    for (auto& channel : channels_) {
      MPI_Comm communicator = MPI_COMM_NULL;
      CheckMpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator), "MPI_Comm_dup");
      channel = std::make_unique<MpiCollective>(communicator, shard, timeout, state);
    }
  }

  int size() const override { return shard_.size; }
  Collective* Of(int rank, ShardChannel channel) override {
    TANDEM_CHECK(rank == shard_.rank, "shard {} is in the process of shard {}", rank, shard_.rank);
    return channels_[static_cast<size_t>(channel)].get();
  }
  void Abort(std::string reason) override { state_->Abort(std::move(reason)); }
  std::optional<Error> failure() const override { return state_->failure(); }

 private:
  const Shard shard_;
  ExchangeState* const state_;
  std::array<std::unique_ptr<MpiCollective>, kNumShardChannels> channels_;
};

class MpiProcesses : public Processes {
 public:
  MpiProcesses(Shard shard, const ProcessesOptions& options)
      : shard_(shard), group_(shard, options.timeout, &state_) {
    CheckMpi(MPI_Comm_dup(MPI_COMM_WORLD, &messages_), "MPI_Comm_dup");
    MPI_Comm pulse = MPI_COMM_NULL;
    CheckMpi(MPI_Comm_dup(MPI_COMM_WORLD, &pulse), "MPI_Comm_dup");
    pulse_ = std::make_unique<Pulse>(pulse, shard, FindNeighbours(), options, &state_);
  }

  Shard shard() const override { return shard_; }
  Shard on_host() const override { return on_host_; }
  CollectiveGroup* collectives() override { return &group_; }

  void Send(int rank, const Message& message) override {
    if (state_.aborted()) return;
    TANDEM_CHECK(message.size() <= static_cast<size_t>(std::numeric_limits<int>::max()),
                 "a message of {} bytes", message.size());
    MPI_Request request = MPI_REQUEST_NULL;
    // Kept if it does not get away.
    auto kept = std::make_unique<Message>(message);
    CheckMpi(MPI_Isend(kept->data(), static_cast<int>(kept->size()), MPI_BYTE, rank, kMessageTag, messages_,
                       &request),
             "MPI_Isend");
    if (!AwaitRequest(&request)) static_cast<void>(kept.release());
  }

  std::optional<Message> Receive(int rank, std::optional<std::chrono::milliseconds> timeout) override {
    MPI_Message matched = MPI_MESSAGE_NULL;
    MPI_Status status = {};
    const bool found = AwaitMpi(state_, timeout, [&] {
      int flag = 0;
      CheckMpi(MPI_Improbe(rank, kMessageTag, messages_, &flag, &matched, &status), "MPI_Improbe");
      return flag != 0;
    });
    if (!found) {
      if (!state_.aborted()) {
        state_.Abort(fmt::format("shard {} of {} has not answered for {:g} s", rank, shard_.size,
                                 std::chrono::duration<double>(*timeout).count()));
      }
      return std::nullopt;
    }
    int size_bytes = 0;
    CheckMpi(MPI_Get_count(&status, MPI_BYTE, &size_bytes), "MPI_Get_count");
    auto message = std::make_unique<Message>(static_cast<size_t>(size_bytes));
    MPI_Request request = MPI_REQUEST_NULL;
    CheckMpi(MPI_Imrecv(message->data(), size_bytes, MPI_BYTE, &matched, &request), "MPI_Imrecv");
    if (AwaitRequest(&request)) return std::move(*message);
    static_cast<void>(message.release());
    return std::nullopt;
  }

  void Leave() override {
    pulse_.reset();
    if (!state_.aborted()) CheckMpi(MPI_Finalize(), "MPI_Finalize");
  }

 private:
  bool AwaitRequest(MPI_Request* request) const {
    return AwaitMpi(state_, std::nullopt, [&] {
      int ended = 0;
      CheckMpi(MPI_Test(request, &ended, MPI_STATUS_IGNORE), "MPI_Test");
      return ended != 0;
    });
  }

  std::vector<HostProcess> FindNeighbours() {
    MPI_Comm host = MPI_COMM_NULL;
    CheckMpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, shard_.rank, MPI_INFO_NULL, &host),
             "MPI_Comm_split_type");
    CheckMpi(MPI_Comm_rank(host, &on_host_.rank), "MPI_Comm_rank");
    CheckMpi(MPI_Comm_size(host, &on_host_.size), "MPI_Comm_size");
    const HostProcess own = ThisProcess(shard_.rank);
    std::vector<HostProcess> all(static_cast<size_t>(on_host_.size));
    CheckMpi(MPI_Allgather(&own, sizeof(own), MPI_BYTE, all.data(), sizeof(own), MPI_BYTE, host),
             "MPI_Allgather");
    std::erase_if(all, [&](const HostProcess& each) {
      return each.rank == shard_.rank || (shard_.rank > 0 && each.rank > 0) || own.pid_namespace == 0 ||
             each.pid_namespace != own.pid_namespace;
    });
    return all;
  }

  const Shard shard_;
  Shard on_host_;
  ExchangeState state_;
  MpiGroup group_;
  MPI_Comm messages_ = MPI_COMM_NULL;
  std::unique_ptr<Pulse> pulse_;
};

}  // namespace

Result<std::unique_ptr<Processes>> JoinMpiProcesses(const ProcessesOptions& options) {
  int provided = 0;
  CheckMpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  CheckMpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  SilenceHelp();
  if (provided < MPI_THREAD_MULTIPLE)
    return MakeError(ErrorCode::kUnavailable, "this MPI cannot be called by several threads at a time");
  Shard shard;
  CheckMpi(MPI_Comm_rank(MPI_COMM_WORLD, &shard.rank), "MPI_Comm_rank");
  CheckMpi(MPI_Comm_size(MPI_COMM_WORLD, &shard.size), "MPI_Comm_size");
  return std::unique_ptr<Processes>(std::make_unique<MpiProcesses>(shard, options));
}

}  // namespace tandem
