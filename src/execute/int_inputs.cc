#include "execute/int_inputs.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace tandem {

Result<IntInputs> IntInputs::Allocate(Device* device, int64_t capacity) {
  IntInputs inputs;
  const size_t size_bytes = static_cast<size_t>(capacity) * sizeof(int32_t);
  TANDEM_ASSIGN_OR_RETURN(inputs.staging_, StagingPair::Allocate(device, size_bytes, "input staging"));
  TANDEM_ASSIGN_OR_RETURN(inputs.device_, device->Allocate(size_bytes, MemoryKind::kDevice, "inputs"));
  return inputs;
}

int32_t* IntInputs::Add(std::span<const int32_t> values) {
  const int64_t end = size_ + static_cast<int64_t>(values.size());
  TANDEM_CHECK(static_cast<size_t>(end) * sizeof(int32_t) <= staging_.size_bytes(), "{} inputs", end);
  std::copy(values.begin(), values.end(), staging_.current() + size_);
  int32_t* address = device_.as<int32_t>() + size_;
  size_ = end;
  return address;
}

void IntInputs::Upload(Stream& stream) const {
  if (size_ > 0)
    stream.Copy(device_.data(), staging_.current(), static_cast<size_t>(size_) * sizeof(int32_t));
}

}  // namespace tandem
