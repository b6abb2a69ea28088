// Which bytes of a text are content: what a request says (messages, tools, ...), as against what the template
// around it says. Content is text and never structure, so the tokenizer finds no control token in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem {

enum class Source : uint8_t { kTemplate, kContent };

// How a text was rewritten, from its start to its end: which bytes became which.
class Alignment {
 public:
  struct Step {
    size_t source_bytes = 0;
    size_t result_bytes = 0;
    bool kept = false;  // byte by byte the same
  };

  void Keep(size_t bytes) { Add(bytes, bytes, true); }
  // source_bytes 0: something was put in.
  void Change(size_t source_bytes, size_t result_bytes) { Add(source_bytes, result_bytes, false); }
  void Add(const Alignment& more) {
    for (const Step& step : more.steps_) Add(step.source_bytes, step.result_bytes, step.kept);
  }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  void Add(size_t source_bytes, size_t result_bytes, bool kept) {
    if (kept && !steps_.empty() && steps_.back().kept) {
      steps_.back().source_bytes += source_bytes;
      steps_.back().result_bytes += result_bytes;
    } else if (source_bytes + result_bytes > 0) {
      steps_.push_back({source_bytes, result_bytes, kept});
    }
  }

  std::vector<Step> steps_;
};

// Offsets are bytes. The length of the text is not stored: what lies behind the last change is of its kind. A
// text of one source costs no allocation.
class Provenance {
 public:
  Provenance() = default;  // all template
  explicit Provenance(Source source) : first_(source) {}

  bool is_uniform() const { return changes_.empty(); }
  // Of a text that is not empty; false for text that is all template.
  bool has_content() const { return first_ == Source::kContent || !changes_.empty(); }

  // Goes through a text from its start to its end.
  class Cursor {
   public:
    explicit Cursor(const Provenance& provenance) : provenance_(provenance), source_(provenance.first_) {}
    // offset must not decrease from call to call.
    Source At(size_t offset) {
      while (next_ < provenance_.changes_.size() && provenance_.changes_[next_] <= offset) {
        source_ = Other(source_);
        ++next_;
      }
      return source_;
    }
    // Where the run that At saw last ends; SIZE_MAX: with the text.
    size_t run_end() const {
      return next_ < provenance_.changes_.size() ? provenance_.changes_[next_] : SIZE_MAX;
    }

   private:
    const Provenance& provenance_;
    Source source_;
    size_t next_ = 0;  // index of the next change
  };

  Source At(size_t offset) const;
  // Content if any byte of [begin, end) is; template if there is none.
  Source Of(size_t begin, size_t end) const;

  // The text has size bytes so far and gets more of this source, at least one.
  void Append(size_t size, Source source) {
    if (size == 0) {
      first_ = source;
      changes_.clear();
    } else if (last() != source) {
      changes_.push_back(size);
    }
  }
  // It gets [begin, end) of the text that other describes. other is not this.
  void Append(size_t size, const Provenance& other, size_t begin, size_t end);

  Provenance Slice(size_t begin, size_t end) const;
  // Of the rewritten text: changed bytes are content if any of those that they came from is.
  Provenance Through(const Alignment& alignment) const;

  friend bool operator==(const Provenance&, const Provenance&) = default;

 private:
  static Source Other(Source source) {
    return source == Source::kContent ? Source::kTemplate : Source::kContent;
  }
  Source last() const { return changes_.size() % 2 == 0 ? first_ : Other(first_); }
  // Index of the first change behind offset.
  size_t ChangeBehind(size_t offset) const;

  Source first_ = Source::kTemplate;
  std::vector<size_t> changes_;  // offsets where the source changes, increasing, none of them 0
};

}  // namespace tandem
