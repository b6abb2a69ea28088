#include "trial/cpu_trials.h"

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "trial/attention_trial.h"
#include "trial/product_trial.h"

namespace tandem {

CpuTrials::CpuTrials(const std::string& folder, Device* device)
    : path_(folder.empty() ? std::string() : ChoicePath(folder, machine_)), device_(device) {
  if (path_.empty()) return;
  auto kept = ReadChoices(path_, machine_);
  if (kept.ok()) {
    kept_ = std::move(kept).value();
  } else if (kept.error().code != ErrorCode::kNotFound) {
    LogWarn("{}; tried anew", kept.error().message);
  }
}

CpuAttention* CpuTrials::Workers(int num_threads) {
  if (workers_ == nullptr || workers_->num_threads() != num_threads) {
    workers_.reset();
    workers_ = std::make_unique<CpuAttention>(CpuAttentionOptions{.num_threads = num_threads});
  }
  return workers_.get();
}

template <typename Use, typename Choice, typename Try>
Choice CpuTrials::ChooseOrTry(const Use& use, std::vector<std::pair<Use, Choice>>* kept, const Try& attempt) {
  if (const Choice* choice = kept_.Find(use)) return *choice;
  const auto begin = std::chrono::steady_clock::now();
  ++num_trials_;
  const Result<Choice> tried = attempt(Workers(use.num_threads));
  if (!tried.ok()) {
    LogWarn("{}; CPU kernels fetch as by default", tried.error().message);
    return {};
  }
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begin;
  LogInfo("tried for {:.0f} ms: {}", passed.count(), Describe(use, tried.value()));
  kept->emplace_back(use, tried.value());
  if (path_.empty()) return tried.value();
  const Status written = WriteChoices(path_, machine_, kept_);
  if (!written.ok()) LogWarn("what was tried is not kept: {}", written.error().message);
  return tried.value();
}

AttentionChoice CpuTrials::Choose(const AttentionUse& use) {
  std::optional<CpuIsa> isa;
  if (const AttentionChoice* other = kept_.FindWithAnyThreads(use)) isa = other->isa;
  return ChooseOrTry(use, &kept_.attention,
                     [&](CpuAttention* workers) { return TryAttention(use, isa, workers, device_); });
}

ProductChoice CpuTrials::Choose(const ProductUse& use) {
  return ChooseOrTry(use, &kept_.products,
                     [&](CpuAttention* workers) { return TryProducts(use, workers, device_); });
}

}  // namespace tandem
