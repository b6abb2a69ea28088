// What one rendering may spend, and the operations that run template code: calls and iteration.
// One Runtime belongs to one Render call and one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace tandem::jinja {

inline constexpr size_t kMaxOutputBytes = size_t{16} << 20;     // of the output and of any one string
inline constexpr size_t kMaxProducedBytes = size_t{256} << 20;  // of all strings that one rendering makes
inline constexpr int64_t kMaxSteps = 10'000'000;                // loop iterations, list elements, comparisons
inline constexpr int kMaxCallDepth = 60;           // macros inside macros, filters inside filters
inline constexpr size_t kMaxKeptObjects = 10'000;  // namespaces and macro definitions

class Runtime {
 public:
  Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  // Each throws TemplateError when the rendering has used up its share.
  void ChargeSteps(int64_t steps);
  void ChargeString(size_t bytes);
  Value NewString(SourcedText text, bool markup = false);
  Value NewList(std::vector<Value> items);

  Value Call(const Value& callee, const Arguments& arguments);

  // What a for loop over value sees; an iterator gives the rest of its items and is then empty.
  std::vector<Value> Iterate(const Value& value);
  // The first item, or nothing; of an iterator it is consumed.
  std::optional<Value> TakeFirst(const Value& value);
  int64_t Length(const Value& value);

  // Namespaces can refer to themselves; the runtime keeps each one and empties it at the end.
  Value NewNamespace();
  // release: breaks the reference cycles of a kept object.
  void Keep(std::shared_ptr<void> object, void (*release)(void*));

 private:
  friend class CallDepthGuard;
  struct Kept {
    std::shared_ptr<void> object;
    void (*release)(void*);
  };

  int64_t steps_ = 0;
  size_t produced_bytes_ = 0;
  int call_depth_ = 0;
  std::vector<Kept> kept_;
};

// Bounds recursion through calls.
class CallDepthGuard {
 public:
  explicit CallDepthGuard(Runtime& runtime);
  CallDepthGuard(const CallDepthGuard&) = delete;
  CallDepthGuard& operator=(const CallDepthGuard&) = delete;
  ~CallDepthGuard() { --runtime_.call_depth_; }

 private:
  Runtime& runtime_;
};

}  // namespace tandem::jinja
