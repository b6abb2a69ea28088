// The variables of a block, and the blocks around it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace tandem::jinja {

class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  const Value* Find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
      for (const auto& [key, value] : scope->variables_) {
        if (key == name) return &value;
      }
    }
    return nullptr;
  }

  // In this scope, which hides those around it.
  void Set(std::string_view name, Value value) {
    for (auto& [key, old] : variables_) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    variables_.emplace_back(name, std::move(value));
  }

  void Clear() { variables_.clear(); }

 private:
  std::shared_ptr<Scope> parent_;
  std::vector<std::pair<std::string, Value>> variables_;
};

}  // namespace tandem::jinja
