#include "ops/host/linear/linear_onednn.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/check.h"

namespace tandem {
namespace {

using dnnl::memory;

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

struct Primitive {
  memory::desc x;
  memory::desc weights;
  memory::desc bias;
  memory::desc y;
  memory::desc scratchpad;
  dnnl::matmul matmul;
  bool is_reference = false;  // then matmul is empty
};

memory::data_type DataType(DType dtype) {
  return dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// x and y are dense here: oneDNN has its reference implementation only for other strides.
Primitive CreatePrimitive(const OneDnnProduct& p) {
  Primitive result;
  result.x = memory::desc({p.rows, p.depth}, DataType(p.dtype), memory::format_tag::ab);
  result.weights =
      memory::desc({p.depth, p.cols}, DataType(p.dtype),
                   p.dtype == DType::kBF16 ? memory::format_tag::BA16a64b2a : memory::format_tag::BA16a64b);
  result.y = memory::desc({p.rows, p.cols}, DataType(p.y_dtype), memory::format_tag::ab);
  dnnl::primitive_attr attr;
  // The library's own scratch memory is not safe for primitives that several threads share.
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::matmul::primitive_desc primitive;
  if (p.bias != nullptr) {
    result.bias = memory::desc({1, p.cols}, memory::data_type::f32, memory::format_tag::ab);
    primitive = {dnnl::matmul::desc(result.x, result.weights, result.bias, result.y), attr, Engine()};
  } else {
    primitive = {dnnl::matmul::desc(result.x, result.weights, result.y), attr, Engine()};
  }
  result.scratchpad = primitive.scratchpad_desc();
  result.is_reference = std::string_view(primitive.impl_info_str()).find("ref") != std::string_view::npos;
  if (!result.is_reference) result.matmul = dnnl::matmul(primitive);
  return result;
}

// Creating a primitive generates code: milliseconds. Shapes repeat, except for the rows of a last chunk, so
// the cache is emptied when an endless variety of those has filled it.
class PrimitiveCache {
 public:
  Primitive Get(const OneDnnProduct& p) {
    const int64_t kind =
        (p.dtype == DType::kBF16 ? 1 : 0) + (p.y_dtype == DType::kBF16 ? 2 : 0) + (p.bias != nullptr ? 4 : 0);
    const Key key = {p.rows, p.cols, p.depth, kind};
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto it = primitives_.find(key); it != primitives_.end()) return it->second;
    constexpr size_t kMaxPrimitives = 4096;
    if (primitives_.size() >= kMaxPrimitives) primitives_.clear();
    return primitives_.emplace(key, CreatePrimitive(p)).first->second;
  }

 private:
  using Key = std::array<int64_t, 4>;
  std::mutex mutex_;
  std::map<Key, Primitive> primitives_;
};

// 64-byte aligned memory of a thread, at least size_bytes of it.
class ThreadBuffer {
 public:
  std::byte* Get(size_t size_bytes) {
    bytes_.resize(std::max(bytes_.size(), size_bytes + 64));
    std::byte* aligned = bytes_.data();
    return aligned + (64 - reinterpret_cast<uintptr_t>(aligned) % 64) % 64;
  }

 private:
  std::vector<std::byte> bytes_;
};

struct Rows {
  std::byte* data = nullptr;
  int64_t stride = 0;  // elements
};

void CopyRows(const Rows& from, const Rows& to, int64_t num_rows, int64_t cols, DType dtype) {
  const auto size = static_cast<int64_t>(DTypeSize(dtype));
  for (int64_t r = 0; r < num_rows; ++r) {
    std::memcpy(to.data + r * to.stride * size, from.data + r * from.stride * size,
                static_cast<size_t>(cols * size));
  }
}

bool Run(const OneDnnProduct& p) {
  static PrimitiveCache cache;
  thread_local dnnl::stream stream = [] {
    omp_set_num_threads(1);  // of this thread: the pool's threads are the parallelism
    return dnnl::stream(Engine());
  }();
  thread_local ThreadBuffer scratchpad;
  thread_local ThreadBuffer dense_x;
  thread_local ThreadBuffer dense_y;
  Primitive primitive = cache.Get(p);
  if (primitive.is_reference) return false;
  // oneDNN takes inputs as non-const pointers and does not write them.
  Rows x = {static_cast<std::byte*>(const_cast<void*>(p.x)), p.x_stride};
  if (p.x_stride != p.depth) {
    const Rows dense = {dense_x.Get(primitive.x.get_size()), p.depth};
    CopyRows(x, dense, p.rows, p.depth, p.dtype);
    x = dense;
  }
  const Rows y = {static_cast<std::byte*>(p.y), p.y_stride};
  const bool y_is_dense = p.y_stride == p.cols;
  const Rows product = y_is_dense ? y : Rows{dense_y.Get(primitive.y.get_size()), p.cols};
  std::unordered_map<int, memory> args = {
      {DNNL_ARG_SRC, memory(primitive.x, Engine(), x.data)},
      {DNNL_ARG_WEIGHTS, memory(primitive.weights, Engine(), const_cast<void*>(p.panels))},
      {DNNL_ARG_DST, memory(primitive.y, Engine(), product.data)},
      {DNNL_ARG_SCRATCHPAD,
       memory(primitive.scratchpad, Engine(), scratchpad.Get(primitive.scratchpad.get_size()))},
  };
  if (p.bias != nullptr) {
    args.emplace(DNNL_ARG_BIAS, memory(primitive.bias, Engine(), const_cast<float*>(p.bias)));
  }
  primitive.matmul.execute(stream, args);
  stream.wait();
  if (!y_is_dense) CopyRows(product, y, p.rows, p.cols, p.y_dtype);
  return true;
}

}  // namespace

bool RunOneDnnProduct(const OneDnnProduct& product) {
  try {
    return Run(product);
  } catch (const dnnl::error& error) {
    TANDEM_CHECK(false, "oneDNN: {} (rows {}, cols {}, depth {}, {})", error.what(), product.rows,
                 product.cols, product.depth, DTypeName(product.dtype));
  }
  return false;
}

}  // namespace tandem
