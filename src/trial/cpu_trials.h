// The one place that makes trials of CPU kernels and keeps their outcome.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "cpu_attention/cpu_attention.h"
#include "device/device.h"
#include "trial/choice_file.h"
#include "trial/cpu_choice.h"

namespace tandem {

// One thread; nothing else should run meanwhile. What is kept is read once, and written after each trial.
class CpuTrials {
 public:
  // folder: where choices are kept; empty: nowhere. device: memory comes from it; outlives the object. What
  // is wrong with the file goes to the log, and is tried anew.
  CpuTrials(const std::string& folder, Device* device);

  // As kept, else tried and kept. A trial that finds no memory ends in the default, which is not kept, with a
  // line in the log.
  AttentionChoice Choose(const AttentionUse& use);
  ProductChoice Choose(const ProductUse& use);

  int num_trials() const { return num_trials_; }

 private:
  // num_threads workers, those of the trial before if they are as many.
  CpuAttention* Workers(int num_threads);
  template <typename Use, typename Choice, typename Try>
  Choice ChooseOrTry(const Use& use, std::vector<std::pair<Use, Choice>>* kept, const Try& attempt);

  TrialMachine machine_ = ThisTrialMachine();
  std::string path_;  // empty: nothing is kept
  Device* device_;
  KeptChoices kept_;
  std::unique_ptr<CpuAttention> workers_;
  int num_trials_ = 0;
};

}  // namespace tandem
