// What trials chose, kept on disk between starts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "trial/cpu_choice.h"

namespace tandem {

// What a choice holds for: cloud machines of several kinds call their processor by one name.
struct TrialMachine {
  std::string cpu;
  uint32_t cpu_signature = 0;  // CpuFeatures::signature
  std::string instruction_sets;
  bool operator==(const TrialMachine&) const = default;
};

TrialMachine ThisTrialMachine();

struct KeptChoices {
  std::vector<std::pair<AttentionUse, AttentionChoice>> attention;
  std::vector<std::pair<ProductUse, ProductChoice>> products;

  // Null: it was not tried.
  const AttentionChoice* Find(const AttentionUse& use) const;
  const ProductChoice* Find(const ProductUse& use) const;
  // The same use with any number of threads: results depend on the instruction set and must not on threads.
  const AttentionChoice* FindWithAnyThreads(AttentionUse use) const;
};

// A file of folder; another one for another machine or version of the format.
std::string ChoicePath(const std::string& folder, const TrialMachine& machine);

// Replaces the file as a whole; makes its folder if need be. Errors: kIo.
Status WriteChoices(const std::string& path, const TrialMachine& machine, const KeptChoices& choices);

// Errors, after which trying anew is right: kNotFound; kIo; kMalformedFile (damaged, another version,
// impossible values); kUnsupported (of another machine).
Result<KeptChoices> ReadChoices(const std::string& path, const TrialMachine& machine);

// A line for people: the use, and what was chosen for it.
std::string Describe(const AttentionUse& use, const AttentionChoice& choice);
std::string Describe(const ProductUse& use, const ProductChoice& choice);

}  // namespace tandem
