// The few functions of NCCL that sums of many rows take. Looked up when a group of several GPUs is made: the
// program starts without the library, and builds without its header.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

#include "base/dtype.h"
#include "base/result.h"

namespace tandem {

struct NcclApi {
  using Communicator = void*;

  // Of ranks that are to find each other.
  struct Id {
    std::array<char, 128> bytes = {};
  };

  // ncclSuccess is 0, of all.
  int (*get_unique_id)(Id*) = nullptr;
  // Blocks until all ranks have called it, but between group_start and group_end, which blocks instead.
  int (*comm_init_rank)(Communicator*, int size, Id, int rank) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int op, Communicator,
                    cudaStream_t) = nullptr;
  int (*comm_get_async_error)(Communicator, int* result) = nullptr;
  int (*comm_abort)(Communicator) = nullptr;
  const char* (*error_text)(int result) = nullptr;
  int version = 0;  // 22800 for 2.28.0
};

inline constexpr int kNcclSum = 0;
// What NCCL calls a type of floating-point numbers.
int NcclTypeOf(DType dtype);

// Error: kUnavailable, with what is missing.
Result<NcclApi> LoadNccl();

}  // namespace tandem
