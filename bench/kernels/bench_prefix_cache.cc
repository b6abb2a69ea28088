// What the prefix cache costs on the host for a prompt of so many tokens: hashing it (a thread of its
// client's), looking for its beginning, attaching and giving up what was found, publishing what was computed
// (the engine thread's).
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "base/block_hash.h"
#include "base/check.h"
#include "kv/kv_books.h"

namespace tandem {
namespace {

constexpr int64_t kBlockSize = 32;
constexpr int64_t kNumBlocks = 200'000;

std::vector<BlockHash> HashesOf(int64_t num_tokens, int32_t first) {
  const BlockHasher hasher({1, 2}, kBlockSize);
  std::vector<int32_t> tokens(static_cast<size_t>(num_tokens));
  std::iota(tokens.begin(), tokens.end(), first);
  return hasher.FullBlocks(hasher.Root(""), tokens);
}

void BM_Hash(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(HashesOf(state.range(0), 1));
}
BENCHMARK(BM_Hash)->Arg(1000)->Arg(32'000)->Unit(benchmark::kMicrosecond);

// Beside a hundred thousand blocks of others.
struct FullBooks {
  explicit FullBooks(int64_t num_tokens) : books(KvBooks::Create(kBlockSize, {kNumBlocks, 0}).value()) {
    constexpr int64_t kOthers = 100;
    for (SequenceId id = 10; id < 10 + kOthers; ++id) Compute(id, 32'000, static_cast<int32_t>(id) * 100'000);
    Compute(1, num_tokens, 1);
    books->Identify(2, HashesOf(num_tokens, 1));
  }
  void Compute(SequenceId id, int64_t num_tokens, int32_t first) {
    books->Identify(id, HashesOf(num_tokens, first));
    TANDEM_CHECK(books->Reserve(id, Tier::kGpu, num_tokens), "no room");
    books->Publish(id, num_tokens);
    books->Release(id);
  }
  std::unique_ptr<KvBooks> books;
};

void BM_LookUp(benchmark::State& state) {
  const FullBooks full(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(full.books->cached_prefix(2, Tier::kGpu, state.range(0) - 1));
}
BENCHMARK(BM_LookUp)->Arg(1000)->Arg(32'000)->Unit(benchmark::kMicrosecond);

void BM_AttachAndRelease(benchmark::State& state) {
  const FullBooks full(state.range(0));
  for (auto _ : state) {
    full.books->Attach(2, Tier::kGpu, state.range(0) / kBlockSize * kBlockSize);
    full.books->Release(2);
  }
}
BENCHMARK(BM_AttachAndRelease)->Arg(1000)->Arg(32'000)->Unit(benchmark::kMicrosecond);

// With reserving and giving back its blocks, and giving up those of others.
void BM_PublishNew(benchmark::State& state) {
  FullBooks full(1000);
  int32_t first = 1 << 28;
  for (auto _ : state) {
    state.PauseTiming();
    const std::vector<BlockHash> hashes = HashesOf(state.range(0), first += 100'000);
    state.ResumeTiming();
    full.books->Identify(3, hashes);
    TANDEM_CHECK(full.books->Reserve(3, Tier::kGpu, state.range(0)), "no room");
    full.books->Publish(3, state.range(0));
    full.books->Forget(3);
  }
}
BENCHMARK(BM_PublishNew)->Arg(1000)->Arg(32'000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tandem
