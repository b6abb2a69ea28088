// Samples rows of logits: a cluster a row, each CTA of which keeps its slice of the row in shared memory and
// goes over it as often as it has to.
#include <algorithm>

#include "device/cuda/kernel_launch.h"
#include "ops/cuda/row_access.h"
#include "ops/cuda/sampling/row_sampler.cuh"
#include "ops/cuda/sampling/sampling_kernels.h"

namespace tandem {
namespace {

// A cluster a row. kMasked: RowSampler's. slice_length: a multiple of 4. cached: the slice is kept in dynamic
// shared memory.
template <bool kMasked>
__global__ void __launch_bounds__(kRowThreads, 2)
    SampleRowsKernel(SampleRowsArgs args, int slice_length, bool cached, bool aligned) {
  __shared__ SampleMemory memory;
  extern __shared__ float4 cache[];
  const int thread = static_cast<int>(threadIdx.x);
  AllowSuccessors();
  RowGroup group(&memory.group);
  WaitForPredecessors();
  if (thread == 0) memory.row = args.params[static_cast<int>(blockIdx.x) / group.size()];
  __syncthreads();
  const int vocab = static_cast<int>(args.logits.cols);
  const int begin = min(vocab, group.rank() * slice_length);
  const int length = min(slice_length, vocab - begin);
  float* slice =
      static_cast<float*>(args.logits.data) + memory.row.logits_row * args.logits.row_stride + begin;
  if (cached) {
    auto* copy = reinterpret_cast<float*>(cache);
    const int num_vectors = aligned ? length / 4 : 0;
#pragma unroll 8
    for (int i = thread; i < num_vectors; i += kRowThreads) {
      cache[i] = reinterpret_cast<const float4*>(slice)[i];
    }
#pragma unroll 4
    for (int i = num_vectors * 4 + thread; i < length; i += kRowThreads) copy[i] = slice[i];
    slice = copy;
  }
  group.Sync();  // from here on every CTA of the cluster is there to be written to
  RowSampler(&memory, slice, begin, length, group).template Run<kMasked>(args);
}

constexpr int64_t kMinVocabForCluster = 8192;

// Lets a kernel use all of the shared memory that it has no variables in; how much that is.
template <typename Kernel>
int AllowAllSharedMemory(CudaStream& stream, Kernel* kernel) {
  cudaFuncAttributes attributes;
  TANDEM_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
  const int size_bytes =
      stream.target().max_shared_bytes_per_block - static_cast<int>(attributes.sharedSizeBytes);
  if (size_bytes <= 0) return 0;
  TANDEM_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, size_bytes));
  return size_bytes;
}

}  // namespace

SampleRowsLayout ChooseSampleRowsLayout(CudaStream& stream) {
  SampleRowsLayout layout;
  layout.max_cache_bytes =
      static_cast<size_t>(std::min(AllowAllSharedMemory(stream, SampleRowsKernel<false>),
                                   AllowAllSharedMemory(stream, SampleRowsKernel<true>)));
  if (stream.target().compute_capability >= 90) {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {kMaxRowCtas, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = kMaxRowCtas;
    config.blockDim = kRowThreads;
    config.dynamicSmemBytes = layout.max_cache_bytes;
    config.stream = stream.handle();
    config.attrs = &cluster;
    config.numAttrs = 1;
    int num_clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&num_clusters, SampleRowsKernel<true>, &config) == cudaSuccess &&
        num_clusters > 0) {
      layout.cluster_size = kMaxRowCtas;
    } else {
      cudaGetLastError();  // one CTA a row works everywhere
    }
  }
  return layout;
}

void LaunchSampleRows(CudaStream& stream, const SampleRowsLayout& layout, const SampleRowsArgs& args) {
  const int64_t vocab = args.logits.cols;
  const int ctas = vocab >= kMinVocabForCluster ? layout.cluster_size : 1;
  const int64_t slice_length = CeilDivide(vocab, int64_t{4} * ctas) * int64_t{4};
  const size_t cache_bytes = static_cast<size_t>(slice_length) * sizeof(float);
  const bool cached = cache_bytes <= layout.max_cache_bytes;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(ctas), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(args.num_rows * ctas);
  config.blockDim = kRowThreads;
  config.dynamicSmemBytes = cached ? cache_bytes : 0;
  config.stream = stream.handle();
  config.attrs = attributes;
  config.numAttrs = stream.target().compute_capability < 90 ? 0 : ctas > 1 ? 2 : 1;
  auto* const kernel = args.has_masks ? SampleRowsKernel<true> : SampleRowsKernel<false>;
  TANDEM_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, args, static_cast<int>(slice_length), cached,
                                       RowsAligned16(args.logits)),
                    "sample: {} rows of {} logits, {} CTAs a row", args.num_rows, vocab, ctas);
}

}  // namespace tandem
