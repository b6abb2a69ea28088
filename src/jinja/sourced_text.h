// A string of the template language: UTF-8 bytes that remember which of them are content.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/provenance.h"

namespace tandem::jinja {

class SourcedText {
 public:
  SourcedText() = default;
  SourcedText(std::string bytes, Source source) : bytes_(std::move(bytes)), provenance_(source) {}
  SourcedText(std::string bytes, Provenance provenance)
      : bytes_(std::move(bytes)), provenance_(std::move(provenance)) {}

  const std::string& bytes() const { return bytes_; }
  const Provenance& provenance() const { return provenance_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Content if any byte is.
  Source source() const {
    return !bytes_.empty() && provenance_.has_content() ? Source::kContent : Source::kTemplate;
  }

  void Append(std::string_view bytes, Source source) {
    if (bytes.empty()) return;
    provenance_.Append(bytes_.size(), source);
    bytes_ += bytes;
  }
  void Append(const SourcedText& text) { Append(text, text.bytes_); }
  // part: a view into text's bytes.
  void Append(const SourcedText& text, std::string_view part) {
    const size_t begin = text.OffsetOf(part);
    provenance_.Append(bytes_.size(), text.provenance_, begin, begin + part.size());
    bytes_ += part;
  }
  void Reserve(size_t bytes) { bytes_.reserve(bytes); }

  // part: a view into the bytes.
  SourcedText Part(std::string_view part) const {
    const size_t begin = OffsetOf(part);
    return {std::string(part), provenance_.Slice(begin, begin + part.size())};
  }

  // map(bytes, alignment) rewrites bytes and, unless alignment is null, says there what became what.
  template <typename Map>
  SourcedText Mapped(Map map) const {
    if (provenance_.is_uniform()) return {map(std::string_view(bytes_), nullptr), provenance_};
    Alignment alignment;
    std::string mapped = map(std::string_view(bytes_), &alignment);
    return {std::move(mapped), provenance_.Through(alignment)};
  }

  std::pair<std::string, Provenance> Release() && { return {std::move(bytes_), std::move(provenance_)}; }

 private:
  size_t OffsetOf(std::string_view part) const { return static_cast<size_t>(part.data() - bytes_.data()); }

  std::string bytes_;
  Provenance provenance_;
};

}  // namespace tandem::jinja
