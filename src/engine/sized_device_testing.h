#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "device/device.h"

namespace tandem {

// A machine of any size. Only its answers about memory matter here; nothing is allocated.
class SizedDevice : public Device {
 public:
  SizedDevice(int64_t device_bytes, int64_t pinned_bytes, bool shared)
      : device_bytes_(device_bytes), pinned_bytes_(pinned_bytes), shared_(shared) {}
  std::string_view backend() const override { return "sized"; }
  std::string Description() const override { return "sized"; }
  Result<Buffer> Allocate(size_t, MemoryKind, std::string_view, const AllocateOptions&) override {
    return MakeError(ErrorCode::kUnsupported, "nothing to give");
  }
  std::unique_ptr<Stream> CreateStream(StreamKind, std::string_view) override { return nullptr; }
  std::unique_ptr<Event> CreateEvent() override { return nullptr; }
  std::unique_ptr<Flag> CreateFlag() override { return nullptr; }
  size_t FreeBytes(MemoryKind kind) const override {
    return static_cast<size_t>(kind == MemoryKind::kDevice ? device_bytes_ : pinned_bytes_);
  }
  bool KindsShareMemory() const override { return shared_; }
  int64_t ClockOffsetNs() override { return 0; }

 private:
  int64_t device_bytes_;
  int64_t pinned_bytes_;
  bool shared_;
};

}  // namespace tandem
