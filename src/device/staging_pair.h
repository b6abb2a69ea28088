// Pinned memory from which integers go to the device, twice: while one half is on its way the other is
// filled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "device/device.h"

namespace tandem {

class StagingPair {
 public:
  // size_bytes: of each half. Errors: kResourceExhausted.
  static Result<StagingPair> Allocate(Device* device, size_t size_bytes, std::string_view what) {
    StagingPair pair;
    for (Buffer& half : pair.halves_) {
      TANDEM_ASSIGN_OR_RETURN(half, device->Allocate(size_bytes, MemoryKind::kPinned, what));
    }
    return pair;
  }

  size_t size_bytes() const { return halves_[0].size_bytes(); }
  // The half that was in use before the last: what was copied from it must have run.
  int32_t* Next() {
    in_use_ ^= 1U;
    return current();
  }
  int32_t* current() const { return halves_[in_use_].as<int32_t>(); }

 private:
  std::array<Buffer, 2> halves_;
  unsigned in_use_ = 0;
};

}  // namespace tandem
