#include "device/cuda/fifo_cuda_stream.h"

#include <nvtx3/nvToolsExt.h>

#include <utility>

#include "base/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_sync.h"
#include "device/cuda/stamp.h"

namespace tandem {
namespace {

class CudaGraph : public Graph {
 public:
  explicit CudaGraph(cudaGraphExec_t exec) : exec_(exec) {}
  ~CudaGraph() override { cudaGraphExecDestroy(exec_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  cudaGraphExec_t exec() const { return exec_; }

 private:
  cudaGraphExec_t exec_;
};

// With unified addressing a pinned word has the same address on both sides.
CUdeviceptr AddressOf(Flag& flag) {
  return reinterpret_cast<CUdeviceptr>(dynamic_cast<CudaFlag&>(flag).word());
}

}  // namespace

FifoCudaStream::FifoCudaStream(cudaStream_t stream, const DriverApi& api, const CudaTarget& target, int gpu,
                               std::string_view name)
    : stream_(stream), api_(api), target_(target), gpu_(gpu), name_(name) {}

FifoCudaStream::~FifoCudaStream() {
  Synchronize();
  cudaStreamDestroy(stream_);
}

void FifoCudaStream::AfterSynchronize(std::function<void()> work) {
  after_synchronize_.push_back(std::move(work));
}

void FifoCudaStream::Copy(void* dst, const void* src, size_t size_bytes) {
  TANDEM_CUDA_CHECK(cudaMemcpyAsync(dst, src, size_bytes, cudaMemcpyDefault, handle()),
                    "stream {}: copy of {} bytes", name_, size_bytes);
}

void FifoCudaStream::CopyRows(void* dst, size_t dst_stride_bytes, const void* src, size_t src_stride_bytes,
                              size_t row_bytes, size_t num_rows) {
  TANDEM_CUDA_CHECK(cudaMemcpy2DAsync(dst, dst_stride_bytes, src, src_stride_bytes, row_bytes, num_rows,
                                      cudaMemcpyDefault, handle()),
                    "stream {}: copy of {} rows of {} bytes, strides {} and {}", name_, num_rows, row_bytes,
                    dst_stride_bytes, src_stride_bytes);
}

void FifoCudaStream::Record(Event& event) {
  auto& cuda_event = dynamic_cast<CudaEvent&>(event);
  cuda_event.set_num_works_before(num_works());
  TANDEM_CUDA_CHECK(cudaEventRecord(cuda_event.handle(), handle()));
}

void FifoCudaStream::Wait(Event& event) {
  TANDEM_CUDA_CHECK(cudaStreamWaitEvent(handle(), dynamic_cast<CudaEvent&>(event).handle()));
  // Now, as the wait may be what draws this stream into the capture.
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  TANDEM_CUDA_CHECK(cudaStreamIsCapturing(handle(), &status), "stream {}", name_);
  joined_ = status == cudaStreamCaptureStatusActive;
}

bool FifoCudaStream::TakeJoin() {
  return std::exchange(joined_, false);
}

void FifoCudaStream::SetFlag(Flag& flag, uint32_t value) {
  TANDEM_CUDA_CHECK(api_.stream_write_value(handle(), AddressOf(flag), value, CU_STREAM_WRITE_VALUE_DEFAULT),
                    "stream {}: set flag to {}", name_, value);
}

void FifoCudaStream::WaitFlag(Flag& flag, uint32_t value) {
  TANDEM_CUDA_CHECK(api_.stream_wait_value(handle(), AddressOf(flag), value, CU_STREAM_WAIT_VALUE_GEQ),
                    "stream {}: wait for flag {}", name_, value);
}

void FifoCudaStream::Synchronize() {
  TANDEM_CUDA_CHECK(cudaStreamSynchronize(handle()), "stream {}", name_);
  // What runs may enqueue again and leave more to do for the next time.
  RunWorks(num_works());
}

void FifoCudaStream::SynchronizeTo(Event& event) {
  event.Synchronize();
  RunWorks(dynamic_cast<CudaEvent&>(event).num_works_before());
}

void FifoCudaStream::RunWorks(uint64_t num_works) {
  while (num_works_run_ < num_works && !after_synchronize_.empty()) {
    const std::function<void()> work = std::move(after_synchronize_.front());
    after_synchronize_.pop_front();
    ++num_works_run_;
    work();
  }
}

void FifoCudaStream::BeginCapture() {
  TANDEM_CUDA_CHECK(cudaStreamBeginCapture(handle(), cudaStreamCaptureModeThreadLocal), "stream {}", name_);
}

std::unique_ptr<Graph> FifoCudaStream::EndCapture() {
  cudaGraph_t graph = nullptr;
  TANDEM_CUDA_CHECK(cudaStreamEndCapture(handle(), &graph), "stream {}", name_);
  cudaGraphExec_t exec = nullptr;
  TANDEM_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0), "stream {}: graph", name_);
  TANDEM_CUDA_CHECK(cudaGraphDestroy(graph));
  // Without this the first launch would pay for it.
  TANDEM_CUDA_CHECK(cudaGraphUpload(exec, handle()), "stream {}: graph", name_);
  return std::make_unique<CudaGraph>(exec);
}

void FifoCudaStream::Launch(Graph& graph) {
  TANDEM_CUDA_CHECK(cudaGraphLaunch(dynamic_cast<CudaGraph&>(graph).exec(), handle()), "stream {}: graph",
                    name_);
}

void FifoCudaStream::Stamp(uint64_t* time_ns) {
  LaunchStamp(handle(), time_ns);
}

void FifoCudaStream::Delay(std::chrono::nanoseconds time) {
  LaunchDelay(handle(), static_cast<uint64_t>(std::max<int64_t>(0, time.count())));
}

void FifoCudaStream::BeginRange(const char* name) {
  nvtxRangePushA(name);
}

void FifoCudaStream::EndRange() {
  nvtxRangePop();
}

CudaStream& AsCudaStream(Stream& stream) {
  auto* cuda_stream = dynamic_cast<CudaStream*>(&stream);
  TANDEM_CHECK(cuda_stream != nullptr, "stream {} is not of the cuda backend", stream.name());
  return *cuda_stream;
}

}  // namespace tandem
