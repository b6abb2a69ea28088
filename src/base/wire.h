// Plain data as bytes and back, for processes of the same program on machines of the same kind.
//
// A structure says what goes over by one function, found beside it, which serves both ways:
//
//   template <typename Archive>
//   void OverWire(Archive& archive, Point& point) {
//     auto& [x, y] = point;  // fails to compile where a member is forgotten
//     archive(x, y);
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tandem {

template <typename T>
concept WireScalar = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class WireWriter {
 public:
  template <typename... T>
  void operator()(T&... values) {
    (Put(values), ...);
  }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  void PutBytes(const void* data, size_t size_bytes) {
    const auto* const begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size_bytes);
  }
  void PutSize(uint64_t size) { PutBytes(&size, sizeof(size)); }

  template <typename T>
  void Put(T& value) {
    if constexpr (WireScalar<T>) {
      PutBytes(&value, sizeof(value));
    } else {
      OverWire(*this, value);
    }
  }
  template <typename T>
  void Put(std::vector<T>& values) {
    PutSize(values.size());
    if constexpr (WireScalar<T>) {
      PutBytes(values.data(), values.size() * sizeof(T));
    } else {
      for (T& each : values) Put(each);
    }
  }
  void Put(std::string& text) {
    PutSize(text.size());
    PutBytes(text.data(), text.size());
  }
  template <typename T>
  void Put(std::optional<T>& value) {
    bool there = value.has_value();
    Put(there);
    if (there) Put(*value);
  }
  template <typename A, typename B>
  void Put(std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }

  std::vector<std::byte> bytes_;
};

// CHECKs that there is what is asked for: bytes are those of a WireWriter of the same program.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename... T>
  void operator()(T&... values) {
    (Get(values), ...);
  }

 private:
  void GetBytes(void* data, size_t size_bytes) {
    TANDEM_CHECK(size_bytes <= bytes_.size(), "{} bytes wanted of a message, {} are left", size_bytes,
                 bytes_.size());
    if (size_bytes > 0) std::memcpy(data, bytes_.data(), size_bytes);
    bytes_ = bytes_.subspan(size_bytes);
  }
  size_t GetSize() {
    uint64_t size = 0;
    GetBytes(&size, sizeof(size));
    TANDEM_CHECK(size <= bytes_.size(), "{} elements in a message of which {} bytes are left", size,
                 bytes_.size());
    return size;
  }

  template <typename T>
  void Get(T& value) {
    if constexpr (WireScalar<T>) {
      GetBytes(&value, sizeof(value));
    } else {
      OverWire(*this, value);
    }
  }
  template <typename T>
  void Get(std::vector<T>& values) {
    values.resize(GetSize());
    if constexpr (WireScalar<T>) {
      GetBytes(values.data(), values.size() * sizeof(T));
    } else {
      for (T& each : values) Get(each);
    }
  }
  void Get(std::string& text) {
    text.resize(GetSize());
    GetBytes(text.data(), text.size());
  }
  template <typename T>
  void Get(std::optional<T>& value) {
    bool there = false;
    Get(there);
    value.reset();
    if (there) Get(value.emplace());
  }
  template <typename A, typename B>
  void Get(std::pair<A, B>& pair) {
    (*this)(pair.first, pair.second);
  }

  std::span<const std::byte> bytes_;
};

}  // namespace tandem
