// The variables of a block, and the blocks around it.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "jinja/value.h"

namespace tandem::jinja {

class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  const Value* Find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
      if (const Value* found = scope->variables_.Find(name)) return found;
    }
    return nullptr;
  }

  // In this scope, which hides those around it.
  void Set(std::string_view name, Value value) { variables_.Set(name, std::move(value)); }

  void Clear() { variables_.entries.clear(); }

 private:
  std::shared_ptr<Scope> parent_;
  NamedValues variables_;
};

}  // namespace tandem::jinja
