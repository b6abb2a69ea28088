// Writes what the GPU did, kernel by kernel, of any program that uses CUDA:
//
//   CUDA_INJECTION64_PATH=build/cuda-release/libcuda_trace.so TANDEM_CUDA_TRACE=trace.csv PROGRAM ...
//
// A line for each kernel, copy and fill, in the order in which they ended: begin_ns, end_ns, GPU, stream,
// blocks, name.
// evaluation/kernel_account.py adds them up. Kernels inside of graphs are told apart as well.
#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace tandem {
namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;

class TraceFile {
 public:
  // Null where TANDEM_CUDA_TRACE names no file that can be written.
  static TraceFile* Instance() {
    static TraceFile file;
    return file.out_ == nullptr ? nullptr : &file;
  }

  void Write(uint64_t begin_ns, uint64_t end_ns, uint32_t gpu, uint32_t stream, int64_t blocks,
             const char* name) {
    const std::lock_guard lock(mutex_);
    std::fprintf(out_, "%llu,%llu,%u,%u,%lld,%s\n", static_cast<unsigned long long>(begin_ns),
                 static_cast<unsigned long long>(end_ns), gpu, stream, static_cast<long long>(blocks), name);
  }
  void Flush() {
    const std::lock_guard lock(mutex_);
    std::fflush(out_);
  }

 private:
  TraceFile() {
    if (const char* path = std::getenv("TANDEM_CUDA_TRACE")) out_ = std::fopen(path, "w");
  }

  std::mutex mutex_;
  std::FILE* out_ = nullptr;
};

void Write(const CUpti_Activity* record) {
  TraceFile* file = TraceFile::Instance();
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      file->Write(kernel->start, kernel->end, kernel->deviceId, kernel->streamId,
                  int64_t{kernel->gridX} * kernel->gridY * kernel->gridZ, kernel->name);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      file->Write(copy->start, copy->end, copy->deviceId, copy->streamId, static_cast<int64_t>(copy->bytes),
                  "[copy]");
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      file->Write(fill->start, fill->end, fill->deviceId, fill->streamId, static_cast<int64_t>(fill->bytes),
                  "[fill]");
      break;
    }
    default:
      break;
  }
}

void CUPTIAPI GiveBuffer(uint8_t** buffer, size_t* size_bytes, size_t* max_records) {
  *size_bytes = kBufferBytes;
  *max_records = 0;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
}

void CUPTIAPI TakeBuffer(CUcontext /*context*/, uint32_t /*stream*/, uint8_t* buffer, size_t /*size_bytes*/,
                         size_t valid_bytes) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) Write(record);
  TraceFile::Instance()->Flush();
  std::free(buffer);
}

}  // namespace
}  // namespace tandem

// The driver calls this when the program first uses it.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  if (tandem::TraceFile::Instance() == nullptr) {
    std::fprintf(stderr, "cuda_trace: TANDEM_CUDA_TRACE names no file that can be written\n");
    return 1;
  }
  cuptiActivityRegisterCallbacks(tandem::GiveBuffer, tandem::TakeBuffer);
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    if (const CUptiResult result = cuptiActivityEnable(kind); result != CUPTI_SUCCESS)
      std::fprintf(stderr, "cuda_trace: activity %d is not traced: error %d\n", kind, result);
  }
  std::atexit([] { cuptiActivityFlushAll(1); });
  return 1;
}
