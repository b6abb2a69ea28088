#include "collective/cuda/nccl_api.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/check.h"

namespace tandem {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";

template <typename Function>
Status Find(void* library, const char* name, Function* function) {
  void* address = dlsym(library, name);
  if (address == nullptr) return MakeError(ErrorCode::kUnavailable, "{} has no {}", kLibrary, name);
  *function = reinterpret_cast<Function>(address);
  return {};
}

}  // namespace

int NcclTypeOf(DType dtype) {
  constexpr int kFloat16 = 6;
  constexpr int kFloat32 = 7;
  constexpr int kBfloat16 = 9;
  if (dtype == DType::kF32) return kFloat32;
  TANDEM_CHECK(dtype == DType::kBF16 || dtype == DType::kF16, "NCCL: a sum of {}", DTypeName(dtype));
  return dtype == DType::kBF16 ? kBfloat16 : kFloat16;
}

Result<NcclApi> LoadNccl() {
  // Multicast takes what not every machine lets a process have; a user who has it may say so.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  // A first sum would wait on the host for that of the other ranks, and so would one that is captured: but a
  // rank captures its graphs by itself.
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  setenv("NCCL_GRAPH_REGISTER", "0", 0);
  // Stays loaded: its threads end with the process.
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return MakeError(ErrorCode::kUnavailable, "{} cannot be loaded", kLibrary);
  NcclApi api;
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclGetUniqueId", &api.get_unique_id));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclCommInitRank", &api.comm_init_rank));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclGroupStart", &api.group_start));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclGroupEnd", &api.group_end));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclAllReduce", &api.all_reduce));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclCommGetAsyncError", &api.comm_get_async_error));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclCommAbort", &api.comm_abort));
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclGetErrorString", &api.error_text));
  int (*get_version)(int*) = nullptr;
  TANDEM_RETURN_IF_ERROR(Find(library, "ncclGetVersion", &get_version));
  get_version(&api.version);
  return api;
}

}  // namespace tandem
