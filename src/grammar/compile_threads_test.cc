// The threads, limits and cache of GrammarCompiler, with compilations that take as long as a test wants.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "grammar/compiled_cache.h"
#include "grammar/grammar_compiler.h"

namespace tandem {
namespace {

class NoGrammar : public Grammar {
 public:
  explicit NoGrammar(size_t bytes) : bytes_(bytes) {}
  std::unique_ptr<GrammarState> Begin() const override { return nullptr; }
  size_t memory_bytes() const override { return bytes_; }

 private:
  size_t bytes_;
};

GrammarSpec Spec(const std::string& text) {
  return {.kind = GrammarSpec::Kind::kRegex, .text = text};
}

// Compilations of texts that begin with "slow" wait until Release.
class Workshop {
 public:
  GrammarCompiler::Answer Build(const GrammarSpec& spec) {
    ++num_builds;
    if (spec.text.starts_with("slow")) {
      std::unique_lock lock(mutex_);
      ++num_waiting_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return is_released_; });
    }
    if (spec.text.starts_with("wrong")) return MakeError(ErrorCode::kInvalidArgument, "wrong");
    return std::shared_ptr<const Grammar>(std::make_shared<NoGrammar>(1000));
  }
  void WaitForSlow(int n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_waiting_ >= n; });
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    is_released_ = true;
    changed_.notify_all();
  }

  std::atomic<int> num_builds = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_waiting_ = 0;
  bool is_released_ = false;
};

class CompileThreadsTest : public testing::Test {
 protected:
  std::unique_ptr<GrammarCompiler> Compiler(GrammarLimits limits) {
    return std::make_unique<GrammarCompiler>(
        [shop = shop_](const GrammarSpec& spec) { return shop->Build(spec); }, limits);
  }

  // Outlives compilations that nobody waits for.
  const std::shared_ptr<Workshop> shop_ = std::make_shared<Workshop>();
};

TEST_F(CompileThreadsTest, WhoComesWhileASpecIsCompiledWaitsForTheSame) {
  const auto compiler = Compiler({.num_threads = 1});
  std::atomic<int> answers = 0;
  std::shared_ptr<const Grammar> grammars[3];
  for (auto& grammar : grammars)
    compiler->Compile(Spec("slow"), [&](GrammarCompiler::Answer answer) {
      grammar = answer.value();
      ++answers;
    });
  shop_->WaitForSlow(1);
  EXPECT_EQ(answers, 0);
  shop_->Release();
  EXPECT_EQ(compiler->CompileAndWait(Spec("slow")).value(), compiler->CompileAndWait(Spec("slow")).value());
  while (answers < 3) std::this_thread::yield();
  EXPECT_EQ(grammars[0], grammars[1]);
  EXPECT_EQ(grammars[0], grammars[2]);
  EXPECT_EQ(shop_->num_builds, 1);
}

TEST_F(CompileThreadsTest, WhatTakesTooLongIsAnsweredAndItsThreadIsLostForAsLong) {
  const auto compiler = Compiler({.max_compile_time = std::chrono::milliseconds(20), .num_threads = 1});
  // A busy machine may not have begun within the time.
  GrammarCompiler::Answer answer = compiler->CompileAndWait(Spec("slow"));
  while (answer.error().code == ErrorCode::kUnavailable && shop_->num_builds == 0)
    answer = compiler->CompileAndWait(Spec("slow"));
  EXPECT_EQ(answer.error().message, "the regular expression takes longer than 20 ms to compile");
  // At once, and not as one that waits.
  bool called = false;
  compiler->Compile(Spec("slow"), [&](const GrammarCompiler::Answer& again) {
    called = true;
    EXPECT_EQ(again.error().code, ErrorCode::kInvalidArgument);
  });
  EXPECT_TRUE(called);
  called = false;
  compiler->Compile(Spec("quick"), [&](const GrammarCompiler::Answer& other) {
    called = true;
    EXPECT_EQ(other.error().code, ErrorCode::kUnavailable);
  });
  EXPECT_TRUE(called);
  shop_->Release();
  // What it made is kept.
  while (!compiler->CompileAndWait(Spec("slow")).ok()) std::this_thread::yield();
  EXPECT_EQ(shop_->num_builds, 1);
  EXPECT_GE(compiler->counters().took_too_long, 1);
}

TEST_F(CompileThreadsTest, OnlySoManyWait) {
  const auto compiler = Compiler({.num_threads = 1, .max_waiting_specs = 2});
  std::atomic<int> answers = 0;
  const auto count = [&](const GrammarCompiler::Answer&) { ++answers; };
  compiler->Compile(Spec("slow"), count);
  shop_->WaitForSlow(1);
  compiler->Compile(Spec("a"), count);
  compiler->Compile(Spec("b"), count);
  EXPECT_EQ(answers, 0);
  EXPECT_EQ(compiler->CompileAndWait(Spec("c")).error().code, ErrorCode::kResourceExhausted);
  shop_->Release();
  while (answers < 3) std::this_thread::yield();
}

TEST_F(CompileThreadsTest, TheEndAnswersWhoWaits) {
  std::atomic<int> answers = 0;
  {
    const auto compiler = Compiler({.num_threads = 1});
    for (const char* text : {"slow", "a", "b"})
      compiler->Compile(Spec(text), [&](const GrammarCompiler::Answer& answer) {
        EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
        ++answers;
      });
    shop_->WaitForSlow(1);
  }
  EXPECT_EQ(answers, 3);
  shop_->Release();
}

TEST_F(CompileThreadsTest, MistakesAreKeptToo) {
  const auto compiler = Compiler({});
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(compiler->CompileAndWait(Spec("wrong")).ok());
  EXPECT_EQ(shop_->num_builds, 1);
}

TEST(CompiledCache, DropsWhatWasNotUsedForLongest) {
  CompiledCache cache(4000);
  const auto grammar = std::make_shared<NoGrammar>(1000);
  for (const char* key : {"a", "b", "c"}) cache.Insert(key, std::shared_ptr<const Grammar>(grammar));
  EXPECT_EQ(cache.size(), 3U);
  EXPECT_NE(cache.Find("a"), nullptr);
  cache.Insert("d", std::shared_ptr<const Grammar>(grammar));
  EXPECT_EQ(cache.Find("b"), nullptr);
  EXPECT_NE(cache.Find("a"), nullptr);
  EXPECT_LE(cache.bytes(), 4000U);
  cache.Insert("large", std::shared_ptr<const Grammar>(std::make_shared<NoGrammar>(5000)));
  EXPECT_EQ(cache.Find("large"), nullptr);
  EXPECT_EQ(cache.size(), 3U);
}

TEST(GrammarSpec, KeysAreEqualForEqualSpecsOnly) {
  using Kind = GrammarSpec::Kind;
  const std::vector<GrammarSpec> specs = {
      {.kind = Kind::kJsonObject},
      {.kind = Kind::kJsonObject, .any_whitespace = false},
      {.kind = Kind::kJsonSchema, .text = "{}"},
      {.kind = Kind::kJsonSchema, .text = "{}", .strict = false},
      {.kind = Kind::kRegex, .text = "{}"},
      {.kind = Kind::kChoice, .choices = {"a", "b"}},
      {.kind = Kind::kChoice, .choices = {"ab"}},
      {.kind = Kind::kChoice, .choices = {"a1:b"}},
  };
  for (const GrammarSpec& a : specs)
    for (const GrammarSpec& b : specs) EXPECT_EQ(CanonicalKey(a) == CanonicalKey(b), a == b);
  EXPECT_EQ(CanonicalKey({.kind = Kind::kRegex, .text = "a"}),
            CanonicalKey({.kind = Kind::kRegex, .text = "a", .any_whitespace = false}));
}

}  // namespace
}  // namespace tandem
