// Hopper's asynchronous instructions: barriers in shared memory, the copy engine (TMA), products of warp groups
// (wgmma). Only for code that is compiled for compute capability 9.0a.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace tandem {
namespace hopper {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Barriers; addresses are those of the shared window.

__device__ __forceinline__ void InitBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Initialized barriers become visible to the copy engine and to the cluster.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}

// Arrives, and lets the phase end only when `bytes` have been copied as well.
__device__ __forceinline__ void ArriveExpectingBytes(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// At the same barrier of another CTA of the cluster (or of this one).
__device__ __forceinline__ void ArriveInCluster(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Until the phase of that parity has ended.
__device__ __forceinline__ void WaitForPhase(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Every thread of every CTA of the cluster.
__device__ __forceinline__ void SyncCluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// Copies.

__device__ __forceinline__ uint64_t EvictFirstPolicy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ uint64_t EvictLastPolicy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void PrefetchMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// The map's box at (column, row). Its bytes count at the barrier.
__device__ __forceinline__ void CopyBox(uint32_t to, const CUtensorMap* map, int column, int row,
                                        uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "l"(policy)
      : "memory");
}

// To the same places of all CTAs of the cluster in the mask.
__device__ __forceinline__ void CopyBoxToCluster(uint32_t to, const CUtensorMap* map, int column, int row,
                                                 uint32_t barrier, uint16_t mask, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "h"(mask), "l"(policy)
      : "memory");
}

// Products.

// Describes a matrix in shared memory, rows of 64 elements of 16 bits, swizzled in units of 128 bytes as the copy
// engine does it; `at`: aligned to 1024 bytes. Adding 2 moves on by 16 columns, 64 by 8 rows.
__device__ __forceinline__ uint64_t DescribeSwizzled(uint32_t at) {
  constexpr uint64_t kBytesOf8Rows = 1024;
  constexpr uint64_t kSwizzle128 = 1;
  return (static_cast<uint64_t>(at & 0x3ffff) >> 4) | (uint64_t{1} << 16) | (kBytesOf8Rows >> 4 << 32) |
         (kSwizzle128 << 62);
}

// Before the first product, and when the sums' registers have been touched.
__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// sums[64, kColumns] += a[64, 16] b[kColumns, 16]^T. Thread t of the warp group has, with g = t / 4
// and m = t % 4 of its lane, rows 16 * warp + g and + 8, columns 8 * j + 2 * m and + 1 at sums[4 * j ...].
template <typename T, int kColumns>
struct WarpGroupProduct;

#define TANDEM_SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define TANDEM_SUMS_8(i) TANDEM_SUMS_4(i), TANDEM_SUMS_4(i + 4)
#define TANDEM_SUMS_16(i) TANDEM_SUMS_8(i), TANDEM_SUMS_8(i + 8)
#define TANDEM_SUMS_32(i) TANDEM_SUMS_16(i), TANDEM_SUMS_16(i + 16)
#define TANDEM_SUMS_48(i) TANDEM_SUMS_32(i), TANDEM_SUMS_16(i + 32)
#define TANDEM_SUMS_64(i) TANDEM_SUMS_32(i), TANDEM_SUMS_32(i + 32)
// registers: the places of all sums; a, b: the places behind them.
#define TANDEM_WARP_GROUP_PRODUCT(T, type, columns, count, registers, a, b)                                    \
  template <>                                                                                                  \
  struct WarpGroupProduct<T, columns> {                                                                        \
    static __device__ __forceinline__ void Add(float (&sums)[count], uint64_t a_at, uint64_t b_at) {           \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned.m64n" #columns        \
                   "k16.f32." type "." type " {" registers "}, " a ", " b ", p, 1, 1, 0, 0;\n}"                \
                   : TANDEM_SUMS_##count(0)                                                                    \
                   : "l"(a_at), "l"(b_at));                                                                    \
    }                                                                                                          \
  };
#define TANDEM_PLACES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TANDEM_PLACES_16 TANDEM_PLACES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TANDEM_PLACES_32 TANDEM_PLACES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TANDEM_PLACES_48 TANDEM_PLACES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define TANDEM_PLACES_64 TANDEM_PLACES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
TANDEM_WARP_GROUP_PRODUCT(__nv_bfloat16, "bf16", 16, 8, TANDEM_PLACES_8, "%8", "%9")
TANDEM_WARP_GROUP_PRODUCT(__nv_bfloat16, "bf16", 32, 16, TANDEM_PLACES_16, "%16", "%17")
TANDEM_WARP_GROUP_PRODUCT(__nv_bfloat16, "bf16", 64, 32, TANDEM_PLACES_32, "%32", "%33")
TANDEM_WARP_GROUP_PRODUCT(__nv_bfloat16, "bf16", 96, 48, TANDEM_PLACES_48, "%48", "%49")
TANDEM_WARP_GROUP_PRODUCT(__nv_bfloat16, "bf16", 128, 64, TANDEM_PLACES_64, "%64", "%65")
TANDEM_WARP_GROUP_PRODUCT(__half, "f16", 16, 8, TANDEM_PLACES_8, "%8", "%9")
TANDEM_WARP_GROUP_PRODUCT(__half, "f16", 32, 16, TANDEM_PLACES_16, "%16", "%17")
TANDEM_WARP_GROUP_PRODUCT(__half, "f16", 64, 32, TANDEM_PLACES_32, "%32", "%33")
TANDEM_WARP_GROUP_PRODUCT(__half, "f16", 96, 48, TANDEM_PLACES_48, "%48", "%49")
TANDEM_WARP_GROUP_PRODUCT(__half, "f16", 128, 64, TANDEM_PLACES_64, "%64", "%65")
#undef TANDEM_WARP_GROUP_PRODUCT
#undef TANDEM_PLACES_8
#undef TANDEM_PLACES_16
#undef TANDEM_PLACES_32
#undef TANDEM_PLACES_48
#undef TANDEM_PLACES_64
#undef TANDEM_SUMS_4
#undef TANDEM_SUMS_8
#undef TANDEM_SUMS_16
#undef TANDEM_SUMS_32
#undef TANDEM_SUMS_48
#undef TANDEM_SUMS_64

#endif

}  // namespace hopper
}  // namespace tandem
