// Shared memory by its addresses: copies to it that nobody waits for yet, and wide loads and stores. For .cu
// files; copies: compute capability 8.0.
#pragma once

#include <cstdint>

namespace tandem {

__device__ __forceinline__ uint64_t StreamingPolicy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// 16 bytes, past L1.
__device__ __forceinline__ void CopyAsync(uint32_t shared_to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_to), "l"(from) : "memory");
}
// Zeros if not valid, and nothing is read.
__device__ __forceinline__ void CopyAsync(uint32_t shared_to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_to), "l"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void CopyAsync(uint32_t shared_to, const void* from, bool valid, uint64_t policy) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(shared_to),
               "l"(from), "r"(bytes), "l"(policy)
               : "memory");
}
// 4 bytes; zeros if not valid.
__device__ __forceinline__ void CopyAsync4(uint32_t shared_to, const void* from, bool valid) {
  const int bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_to), "l"(from), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ uint4 LoadShared(uint32_t from) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(from)
               : "memory");
  return value;
}
__device__ __forceinline__ uint2 LoadShared8(uint32_t from) {
  uint2 value;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(from) : "memory");
  return value;
}
__device__ __forceinline__ uint32_t LoadShared4(uint32_t from) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}
// kWords neighbours, aligned to as many or to 16 bytes.
template <int kWords>
__device__ __forceinline__ void LoadSharedWords(uint32_t (&words)[kWords], uint32_t from) {
  static_assert(kWords == 1 || kWords == 2 || kWords % 4 == 0);
  if constexpr (kWords == 1) {
    words[0] = LoadShared4(from);
  } else if constexpr (kWords == 2) {
    const uint2 two = LoadShared8(from);
    words[0] = two.x;
    words[1] = two.y;
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      const uint4 four = LoadShared(from + static_cast<uint32_t>(i * 4));
      words[i] = four.x;
      words[i + 1] = four.y;
      words[i + 2] = four.z;
      words[i + 3] = four.w;
    }
  }
}

__device__ __forceinline__ void StoreShared(uint32_t to, const uint4& value) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}
__device__ __forceinline__ void StoreShared8(uint32_t to, const float2& value) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(value.x), "f"(value.y) : "memory");
}

// Four 8x8 matrices of 16-bit elements, of which the addresses are those of rows: lane / 8 of the warp's
// lanes gives the matrix. A thread gets two neighbours of row lane / 4 of each.
__device__ __forceinline__ uint4 LoadMatrices(uint32_t row_from) {
  uint4 value;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(row_from)
               : "memory");
  return value;
}

}  // namespace tandem
