// What the kernel benchmarks share: a host device with one stream and ops on it.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"

namespace tandem {

class HostBench {
 public:
  explicit HostBench(OneDnnUse onednn = OneDnnUse::kAuto, int num_threads = 0) {
    HostOpsOptions ops_options;
    ops_options.onednn = onednn;
    ops_ = CreateHostOps(ops_options);
    HostDeviceOptions options;
    options.num_compute_threads = num_threads;
    device_ = CreateHostDevice(options);
    stream_ = device_->CreateStream(StreamKind::kCompute, "bench");
  }
  Ops& ops() { return *ops_; }
  Stream& stream() { return *stream_; }

 private:
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

// Normal values, so that no product is a denormal or an infinity.
inline std::vector<std::byte> RandomElements(DType dtype, int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(count) * DTypeSize(dtype));
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  for (int64_t i = 0; i < count; ++i) {
    const float value = uniform(random);
    if (dtype == DType::kF32) {
      std::memcpy(bytes.data() + i * 4, &value, 4);
    } else {
      const bf16_t rounded = F32ToBF16(value);
      std::memcpy(bytes.data() + i * 2, &rounded, 2);
    }
  }
  return bytes;
}

}  // namespace tandem
