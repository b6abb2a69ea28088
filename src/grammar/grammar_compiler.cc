#include "grammar/grammar_compiler.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "grammar/compiled_cache.h"
#include "grammar/xgrammar_build.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

// Decoding goes first. Of this thread alone: so it is on Linux.
void LowerPriority() {
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);
}

Error Closing() {
  return MakeError(ErrorCode::kUnavailable, "grammars are not compiled any more");
}

}  // namespace

// Everything that the threads share; the last of them ends it.
class GrammarCompiler::Shop {
 public:
  Shop(Build build, const GrammarLimits& limits)
      : limits_(limits), build_(std::move(build)), cache_(limits.cache_bytes) {}

  void Submit(GrammarSpec spec, Done done);
  void Work();   // of a compile thread
  void Watch();  // of the thread that tells who waits that it took too long
  void Close();
  Counters counters() const;

 private:
  struct Waiter {
    Done done;
    Clock::time_point deadline;
  };
  // A spec on its way.
  struct Job {
    GrammarSpec spec;
    std::vector<Waiter> waiters;
    bool is_running = false;
    bool is_lost = false;
  };

  Error TookTooLong(const GrammarSpec& spec) const {
    return MakeError(ErrorCode::kInvalidArgument, "the {} takes longer than {} ms to compile",
                     KindName(spec.kind), limits_.max_compile_time.count());
  }
  std::optional<Answer> AnswerAtOnce(const std::string& key);
  void TakeExpired(Clock::time_point now, std::vector<std::pair<Done, Error>>& expired);

  const GrammarLimits limits_;
  const Build build_;
  mutable std::mutex mutex_;
  std::condition_variable work_, watch_;
  CompiledCache cache_;
  std::map<std::string, Job> jobs_;
  std::deque<std::string> queue_;  // keys of jobs_ that do not run yet
  int num_lost_ = 0;
  bool closing_ = false;
  Counters counters_;
};

// With mutex_ held.
std::optional<GrammarCompiler::Answer> GrammarCompiler::Shop::AnswerAtOnce(const std::string& key) {
  if (closing_) return Closing();
  if (const CompiledCache::Value* kept = cache_.Find(key)) {
    ++counters_.cache_hits;
    return *kept;
  }
  if (const auto job = jobs_.find(key); job != jobs_.end())
    return job->second.is_lost ? std::optional<Answer>(TookTooLong(job->second.spec)) : std::nullopt;
  if (num_lost_ >= limits_.num_threads)
    return MakeError(ErrorCode::kUnavailable,
                     "all {} threads that compile grammars are busy with ones that take too long",
                     limits_.num_threads);
  if (queue_.size() >= limits_.max_waiting_specs)
    return MakeError(ErrorCode::kResourceExhausted,
                     "{} grammars are waiting to be compiled, and no more are taken", queue_.size());
  return std::nullopt;
}

void GrammarCompiler::Shop::Submit(GrammarSpec spec, Done done) {
  if (SpecBytes(spec) > limits_.max_spec_bytes)
    return done(MakeError(ErrorCode::kInvalidArgument, "the {} has {} bytes, and at most {} are allowed",
                          KindName(spec.kind), SpecBytes(spec), limits_.max_spec_bytes));
  std::string key = CanonicalKey(spec);
  std::unique_lock lock(mutex_);
  if (std::optional<Answer> answer = AnswerAtOnce(key)) {
    lock.unlock();
    return done(*std::move(answer));
  }
  const auto [job, is_new] = jobs_.try_emplace(key);
  job->second.waiters.push_back({std::move(done), Clock::now() + limits_.max_compile_time});
  if (is_new) {
    job->second.spec = std::move(spec);
    queue_.push_back(std::move(key));
    work_.notify_one();
  }
  watch_.notify_one();
}

void GrammarCompiler::Shop::Work() {
  LowerPriority();
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (closing_) return;
    const std::string key = std::move(queue_.front());
    queue_.pop_front();
    Job& job = jobs_.at(key);
    job.is_running = true;
    lock.unlock();
    Answer answer = build_(job.spec);
    lock.lock();
    ++counters_.compiled;
    if (job.is_lost) --num_lost_;
    const std::vector<Waiter> waiters = std::move(job.waiters);
    jobs_.erase(key);
    if (answer.ok() || answer.error().code != ErrorCode::kResourceExhausted) cache_.Insert(key, answer);
    lock.unlock();
    for (const Waiter& waiter : waiters) waiter.done(answer);
    lock.lock();
  }
}

// With mutex_ held. Who waits for a job that runs loses it, who waits for a thread was only unlucky.
void GrammarCompiler::Shop::TakeExpired(Clock::time_point now, std::vector<std::pair<Done, Error>>& expired) {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    auto& [spec, waiters, is_running, is_lost] = job->second;
    const Error error = is_running ? TookTooLong(spec)
                                   : MakeError(ErrorCode::kUnavailable,
                                               "no thread became free to compile the {} within {} ms",
                                               KindName(spec.kind), limits_.max_compile_time.count());
    const size_t before = expired.size();
    std::erase_if(waiters, [&](Waiter& waiter) {
      if (waiter.deadline > now) return false;
      expired.emplace_back(std::move(waiter.done), error);
      return true;
    });
    if (is_running && !is_lost && expired.size() > before) {
      is_lost = true;
      ++num_lost_;
      // Whoever came later would wait for the same.
      for (Waiter& waiter : waiters) expired.emplace_back(std::move(waiter.done), error);
      waiters.clear();
    }
    if (!is_running && waiters.empty()) {
      std::erase(queue_, job->first);
      job = jobs_.erase(job);
    } else {
      ++job;
    }
  }
  counters_.took_too_long += static_cast<int64_t>(expired.size());
}

void GrammarCompiler::Shop::Watch() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    auto next = Clock::time_point::max();
    for (const auto& [key, job] : jobs_)
      for (const Waiter& waiter : job.waiters) next = std::min(next, waiter.deadline);
    if (next == Clock::time_point::max()) {
      watch_.wait(lock);
    } else {
      watch_.wait_until(lock, next);
    }
    std::vector<std::pair<Done, Error>> expired;
    TakeExpired(Clock::now(), expired);
    if (expired.empty()) continue;
    lock.unlock();
    for (auto& [done, error] : expired) done(error);
    lock.lock();
  }
}

void GrammarCompiler::Shop::Close() {
  std::vector<Waiter> waiters;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    for (auto& [key, job] : jobs_) {
      std::ranges::move(job.waiters, std::back_inserter(waiters));
      job.waiters.clear();
    }
  }
  work_.notify_all();
  watch_.notify_all();
  for (const Waiter& waiter : waiters) waiter.done(Closing());
}

GrammarCompiler::Counters GrammarCompiler::Shop::counters() const {
  const std::lock_guard lock(mutex_);
  Counters counters = counters_;
  counters.cached_grammars = static_cast<int64_t>(cache_.size());
  counters.cached_bytes = static_cast<int64_t>(cache_.bytes());
  return counters;
}

GrammarCompiler::Thread GrammarCompiler::Start(void (Shop::*loop)()) {
  std::promise<void> promise;
  std::future<void> ended = promise.get_future();
  std::thread thread([shop = shop_, loop, promise = std::move(promise)]() mutable {
    ((*shop).*loop)();
    promise.set_value();
  });
  return {std::move(thread), std::move(ended)};
}

GrammarCompiler::GrammarCompiler(GrammarVocabulary vocabulary, const GrammarLimits& limits)
    : GrammarCompiler([builder = std::make_shared<GrammarBuilder>(std::move(vocabulary), limits)](
                          const GrammarSpec& spec) { return builder->Build(spec); },
                      limits) {}

GrammarCompiler::GrammarCompiler(Build build, const GrammarLimits& limits)
    : shop_(std::make_shared<Shop>(std::move(build), limits)) {
  TANDEM_CHECK(limits.num_threads > 0, "{} threads", limits.num_threads);
  for (int i = 0; i < limits.num_threads; ++i) threads_.push_back(Start(&Shop::Work));
  threads_.push_back(Start(&Shop::Watch));
}

GrammarCompiler::~GrammarCompiler() {
  shop_->Close();
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);
  for (Thread& thread : threads_) {
    if (thread.ended.wait_until(deadline) == std::future_status::ready) {
      thread.thread.join();
    } else {
      thread.thread.detach();
    }
  }
}

void GrammarCompiler::Compile(GrammarSpec spec, Done done) {
  shop_->Submit(std::move(spec), std::move(done));
}

GrammarCompiler::Answer GrammarCompiler::CompileAndWait(GrammarSpec spec) {
  std::promise<Answer> promise;
  std::future<Answer> answer = promise.get_future();
  Compile(std::move(spec), [&promise](Answer a) { promise.set_value(std::move(a)); });
  return answer.get();
}

GrammarCompiler::Counters GrammarCompiler::counters() const {
  return shop_->counters();
}

}  // namespace tandem
