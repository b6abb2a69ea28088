// One-shot exchange: each rank writes what it has into the inboxes of all others, raises a flag there, waits
// for theirs and reads its own inbox.
//
//   rank 0, block b    values -> inbox[1][0, b], flag[1][0, b] | wait flag[0][1, b] | inbox[0][1, b] + values
//   rank 1, block b    values -> inbox[0][1, b], flag[0][1, b] | wait flag[1][0, b] | inbox[1][0, b] + values
//
// Each block of a kernel has slots and flags of its own, so blocks of one kernel need not wait for each
// other, and counts its exchanges on the device, so a captured graph may run again and again. A slot is there
// twice: who writes it for the count n + 2 has seen everybody's flag for n + 1, which was raised behind the
// reads of n. A wait is bounded: a rank that does not come is named in pinned memory, and all further
// exchange of the channel leaves what it has as it is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/matrix_view.h"
#include "device/cuda/cuda_stream.h"

namespace tandem {

inline constexpr int kMostPeers = 8;
// Of a slot; behind it lies its header.
inline constexpr size_t kSlotBytes = size_t{32} << 10;
inline constexpr size_t kSlotHeaderBytes = 16;

// Pinned, of one rank: written by kernels of its GPU but for aborted, which the host writes too.
struct PeerControl {
  uint32_t aborted = 0;
  uint32_t late = 0;  // 1 + the rank that did not come
};

// A rank's end. Memory of the others: their inboxes and flags, which it writes.
struct PeerEnd {
  int32_t rank = 0;
  int32_t size = 1;
  int32_t num_blocks = 1;  // of a kernel at most, for which there are slots
  uint64_t timeout_ns = 0;
  std::array<std::byte*, kMostPeers> inboxes = {};  // by rank
  std::array<uint32_t*, kMostPeers> flags = {};     // by rank, of [source][block]
  uint32_t* counts = nullptr;                       // own, of [block]
  PeerControl* control = nullptr;                   // own
};

// Of one rank, for sources of which each has num_blocks blocks.
size_t PeerInboxBytes(int size, int num_blocks);
// What num_blocks blocks exchange at most before they wait for each other a second time.
int64_t PeerOneRoundBytes(int num_blocks);

// All launch one kernel, the same on every rank. Shapes as of Collective. values: fp32, bf16 or fp16, added
// in fp32 and in the order of ranks, rounded once.
void LaunchPeerAllReduce(CudaStream& stream, const PeerEnd& end, const MatrixView& values);
void LaunchPeerAllGather(CudaStream& stream, const PeerEnd& end, const MatrixView& matrix,
                         int64_t column_begin, int64_t num_columns);
void LaunchPeerBroadcast(CudaStream& stream, const PeerEnd& end, void* data, size_t size_bytes);
void LaunchPeerMin(CudaStream& stream, const PeerEnd& end, int32_t* values, int64_t num_values);

// For the GPU of the calling thread, once before the first launch there.
void PreparePeerKernels();

}  // namespace tandem
