#include "execute/remote_executor.h"

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/wire.h"
#include "plan/iteration_wire.h"

namespace tandem {

template <typename Archive>
void OverWire(Archive& archive, StallWatch::Look& look) {
  auto& [num_tasks, owes_output] = look;
  archive(num_tasks, owes_output);
}

template <typename Archive>
void OverWire(Archive& archive, CohortProgress& progress) {
  auto& [cohort, cursor, num_visits] = progress;
  archive(cohort, cursor, num_visits);
}

namespace {

enum class Command : uint8_t {
  kEnd,
  kWarmUp,
  kDropCohort,
  kCpuTierUsable,
  kEnter,
  kRun,
  kEndsWithin,
  kLookAtOldest,
  kAbortOldest,
  kCompleteOldest,
  kAbortCohorts,
  kCollectOldest,
  kFailCohorts,
};

// What is asked for and nobody answers.
struct NoReply {};
// What is answered and says nothing but that it is done.
struct Done {};

// What takes longest but for WarmUp is a cohort that is dropped while CPU attention stalls: 5 s with shards.
constexpr std::chrono::milliseconds kPatience{10'000};

template <typename Archive>
void OverWire(Archive& archive, Done&) {
  archive();
}

// An error of Enter, if there is one.
struct EnterReply {
  bool ok = true;
  ErrorCode code = ErrorCode::kUnavailable;
  std::string message;
};
template <typename Archive>
void OverWire(Archive& archive, EnterReply& reply) {
  auto& [ok, code, message] = reply;
  archive(ok, code, message);
}

struct SequenceReply {
  SequenceId sequence = 0;
  int64_t num_computed = 0;
  bool failed = false;
};
template <typename Archive>
void OverWire(Archive& archive, SequenceReply& reply) {
  auto& [sequence, num_computed, failed] = reply;
  archive(sequence, num_computed, failed);
}

struct CollectReply {
  std::vector<SequenceReply> sequences;
  std::vector<CohortProgress> cohorts;
  int64_t kv_bytes = 0;
  int64_t attended_kv_bytes = 0;
};
template <typename Archive>
void OverWire(Archive& archive, CollectReply& reply) {
  auto& [sequences, cohorts, kv_bytes, attended_kv_bytes] = reply;
  archive(sequences, cohorts, kv_bytes, attended_kv_bytes);
}

CollectReply ReplyOf(const IterationResult& result) {
  CollectReply reply;
  for (const SequenceResult& each : result.sequences) {
    reply.sequences.push_back(
        {.sequence = each.sequence, .num_computed = each.num_computed, .failed = each.failed});
  }
  reply.cohorts = result.cohorts;
  reply.kv_bytes = result.cpu_attention.kv_bytes;
  reply.attended_kv_bytes = result.cpu_attention.attended_kv_bytes;
  return reply;
}

IterationResult ResultOf(CollectReply reply) {
  IterationResult result;
  for (const SequenceReply& each : reply.sequences) {
    result.sequences.push_back(
        {.sequence = each.sequence, .num_computed = each.num_computed, .failed = each.failed});
  }
  result.cohorts = std::move(reply.cohorts);
  result.cpu_attention.kv_bytes = reply.kv_bytes;
  result.cpu_attention.attended_kv_bytes = reply.attended_kv_bytes;
  return result;
}

Message MessageOf(Command command) {
  WireWriter writer;
  writer(command);
  return writer.Take();
}

// The other end: one command after the other.
class Obedience {
 public:
  Obedience(Processes* processes, Executor* executor) : processes_(processes), executor_(executor) {}

  void Obey(const Message& message) {
    WireReader reader(message);
    Command command = Command::kEnd;
    reader(command);
    switch (command) {
      case Command::kEnd:
        break;
      case Command::kWarmUp:
        executor_->WarmUp();
        return Reply(Done());
      case Command::kDropCohort:
        return Reply(executor_->DropCohort(Read<CohortId>(&reader)));
      case Command::kCpuTierUsable:
        return Reply(executor_->CpuTierUsable());
      case Command::kEnter:
        return Reply(Enter(Read<IterationInput>(&reader)));
      case Command::kRun:
        TANDEM_CHECK(entered_, "an iteration is to run that has not entered");
        executor_->Run(std::move(*entered_));
        entered_.reset();
        return;
      case Command::kEndsWithin:
        return Reply(executor_->EndsWithin(std::chrono::microseconds(Read<int64_t>(&reader))));
      case Command::kLookAtOldest:
        return Reply(executor_->LookAtOldest());
      case Command::kAbortOldest:
        return executor_->AbortOldest();
      case Command::kCompleteOldest:
        return Reply(executor_->CompleteOldest(Read<bool>(&reader)));
      case Command::kAbortCohorts:
        return executor_->AbortCohorts();
      case Command::kCollectOldest:
        return Reply(ReplyOf(executor_->CollectOldest(Read<bool>(&reader))));
      case Command::kFailCohorts:
        return executor_->FailCohorts();
    }
    TANDEM_CHECK(false, "command {} from rank 0", static_cast<int>(command));
  }

 private:
  template <typename T>
  static T Read(WireReader* reader) {
    T value{};
    (*reader)(value);
    return value;
  }

  template <typename T>
  void Reply(T reply) {
    WireWriter writer;
    writer(reply);
    processes_->Send(0, writer.Take());
  }

  EnterReply Enter(IterationInput input) {
    const Status status = executor_->Enter(&input);
    if (!status.ok()) return {.ok = false, .code = status.error().code, .message = status.error().message};
    entered_ = std::move(input);
    return {};
  }

  Processes* const processes_;
  Executor* const executor_;
  std::optional<IterationInput> entered_;
};

}  // namespace

template <typename Reply, typename... Arguments>
std::optional<Reply> RemoteExecutor::Ask(Patience patience, uint8_t command, Arguments... arguments) {
  WireWriter writer;
  writer(command, arguments...);
  processes_->Send(rank_, writer.Take());
  if constexpr (std::is_same_v<Reply, NoReply>) {
    return std::nullopt;
  } else {
    const std::optional<Message> message =
        processes_->Receive(rank_, patience == Patience::kBounded ? std::optional(kPatience) : std::nullopt);
    if (!message) return std::nullopt;
    Reply reply{};
    WireReader reader(*message);
    reader(reply);
    return reply;
  }
}

void RemoteExecutor::WarmUp() {
  Ask<Done>(Patience::kAsLongAsItLives, static_cast<uint8_t>(Command::kWarmUp));
}

bool RemoteExecutor::DropCohort(CohortId id) {
  return Ask<bool>(Patience::kBounded, static_cast<uint8_t>(Command::kDropCohort), id).value_or(true);
}

bool RemoteExecutor::CpuTierUsable() {
  return Ask<bool>(Patience::kBounded, static_cast<uint8_t>(Command::kCpuTierUsable)).value_or(false);
}

Status RemoteExecutor::Enter(IterationInput* input) {
  WireWriter writer;
  auto command = Command::kEnter;
  writer(command, *input);
  processes_->Send(rank_, writer.Take());
  const std::optional<Message> message = processes_->Receive(rank_, kPatience);
  if (!message) return {};
  EnterReply reply;
  WireReader reader(*message);
  reader(reply);
  if (reply.ok) return {};
  return Error{.code = reply.code, .message = std::move(reply.message), .param = {}};
}

void RemoteExecutor::Run(IterationInput) {
  Ask<NoReply>(Patience::kBounded, static_cast<uint8_t>(Command::kRun));
}

bool RemoteExecutor::EndsWithin(std::chrono::microseconds time) {
  return Ask<bool>(Patience::kBounded, static_cast<uint8_t>(Command::kEndsWithin),
                   static_cast<int64_t>(time.count()))
      .value_or(true);
}

StallWatch::Look RemoteExecutor::LookAtOldest() {
  return Ask<StallWatch::Look>(Patience::kBounded, static_cast<uint8_t>(Command::kLookAtOldest))
      .value_or(StallWatch::Look());
}

void RemoteExecutor::AbortOldest() {
  Ask<NoReply>(Patience::kBounded, static_cast<uint8_t>(Command::kAbortOldest));
}

bool RemoteExecutor::CompleteOldest(bool stalled) {
  return Ask<bool>(Patience::kBounded, static_cast<uint8_t>(Command::kCompleteOldest), stalled)
      .value_or(false);
}

void RemoteExecutor::AbortCohorts() {
  Ask<NoReply>(Patience::kBounded, static_cast<uint8_t>(Command::kAbortCohorts));
}

IterationResult RemoteExecutor::CollectOldest(bool stalled) {
  auto reply = Ask<CollectReply>(Patience::kBounded, static_cast<uint8_t>(Command::kCollectOldest), stalled);
  return reply ? ResultOf(std::move(*reply)) : IterationResult();
}

void RemoteExecutor::FailCohorts() {
  Ask<NoReply>(Patience::kBounded, static_cast<uint8_t>(Command::kFailCohorts));
}

Status ObeyRank0(Processes* processes, Executor* executor) {
  Obedience obedience(processes, executor);
  while (const auto message = processes->Receive(0, std::nullopt)) {
    if (IsEnd(*message)) return {};
    obedience.Obey(*message);
  }
  return *processes->collectives()->failure();
}

void SendEnd(Processes* processes, int rank) {
  processes->Send(rank, MessageOf(Command::kEnd));
}

bool IsEnd(const Message& message) {
  return message == MessageOf(Command::kEnd);
}

}  // namespace tandem
