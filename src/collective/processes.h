// Shards in processes of their own, one each, started together by mpirun or srun: what they exchange,
// messages between rank 0, which leads, and the others, and whether all are alive.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/wire.h"
#include "collective/collective.h"
#include "collective/shard.h"

namespace tandem {

using Message = std::vector<std::byte>;

// All processes of a model, seen from one of them. A process that ends, or is not heard of for some seconds,
// ends the exchange for all: collectives()->failure() then names it.
class Processes {
 public:
  virtual ~Processes() = default;
  virtual Shard shard() const = 0;
  // Among those on this host, with which it shares cores and memory.
  virtual Shard on_host() const = 0;
  // For streams of host devices. Only of this process' own rank there is an end.
  virtual CollectiveGroup* collectives() = 0;

  // Between rank 0 and another one, in order. A thread at a time for each rank.

  // Blocks until the message is on its way. After a failure nothing is sent.
  virtual void Send(int rank, const Message& message) = 0;
  // Blocks for the next message. Absent after a failure, which it is too if nothing comes within the timeout
  // (absent: as long as the other one is alive).
  virtual std::optional<Message> Receive(int rank, std::optional<std::chrono::milliseconds> timeout) = 0;

  // The end: blocks until the others have come to it too, or after a failure until they were told why.
  virtual void Leave() = 0;
};

template <typename Archive>
void OverWire(Archive& archive, Error& error) {
  auto& [code, message, param] = error;
  archive(code, message, param);
}

// The error of another rank, which it names.
Error ErrorOf(const Shard& rank, Error error);
// Why nothing came of the others.
Error NotHeardOfOthers(Processes* processes);

// What each has given, by rank. All call it at the same step, between messages of other kinds. Absent after a
// failure, or where rank 0 says something else instead.
std::optional<std::vector<Message>> ShareWithAll(Processes* processes, const Message& own);

// The same of a number.
template <typename Value>
std::optional<std::vector<Value>> ValuesOfAll(Processes* processes, Value own) {
  WireWriter writer;
  writer(own);
  const auto messages = ShareWithAll(processes, writer.Take());
  if (!messages) return std::nullopt;
  std::vector<Value> values(messages->size());
  for (size_t rank = 0; rank < values.size(); ++rank) {
    WireReader reader((*messages)[rank]);
    reader(values[rank]);
  }
  return values;
}

struct ProcessesOptions {
  // For which a shard waits for another one's part of an exchange.
  std::chrono::milliseconds timeout{10'000};
  // For which a process may not be heard of.
  std::chrono::milliseconds silence{6'000};
  // Of ranks but 0, which have nobody to answer to: called some seconds after a failure if the process has
  // not ended by then, as part of it may be stuck. On a thread of its own; empty: nothing is done.
  std::function<void()> on_stuck;
};

// By the environment that mpirun and srun give: whether this process is one of several.
bool IsOneOfSeveralProcesses();

// Once a program, on the thread that calls Leave; blocks until all processes have called it. Errors:
// kUnsupported without MPI in this build, kUnavailable where MPI does not do what is needed. What it returns
// is never to be destroyed after a failure: messages may be under way.
Result<std::unique_ptr<Processes>> JoinProcesses(const ProcessesOptions& options);

}  // namespace tandem
