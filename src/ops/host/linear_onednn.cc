#include "ops/host/linear_onednn.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
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
};

memory::data_type DataType(DType dtype) {
  return dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

Primitive CreatePrimitive(const OneDnnProduct& p) {
  Primitive result;
  result.x = memory::desc({p.rows, p.depth}, DataType(p.dtype), memory::dims{p.x_stride, 1});
  result.weights =
      memory::desc({p.depth, p.cols}, DataType(p.dtype),
                   p.dtype == DType::kBF16 ? memory::format_tag::BA16a64b2a : memory::format_tag::BA16a64b);
  result.y = memory::desc({p.rows, p.cols}, DataType(p.y_dtype), memory::dims{p.y_stride, 1});
  dnnl::primitive_attr attr;
  // The library's own scratch memory is not safe for primitives that several threads share.
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.bias != nullptr) {
    result.bias = memory::desc({1, p.cols}, memory::data_type::f32, memory::format_tag::ab);
    const dnnl::matmul::desc desc(result.x, result.weights, result.bias, result.y);
    const dnnl::matmul::primitive_desc primitive(desc, attr, Engine());
    result.scratchpad = primitive.scratchpad_desc();
    result.matmul = dnnl::matmul(primitive);
  } else {
    const dnnl::matmul::desc desc(result.x, result.weights, result.y);
    const dnnl::matmul::primitive_desc primitive(desc, attr, Engine());
    result.scratchpad = primitive.scratchpad_desc();
    result.matmul = dnnl::matmul(primitive);
  }
  return result;
}

// Creating a primitive generates code: milliseconds. Shapes repeat, except for the rows of a last chunk, so
// the cache is emptied when an endless variety of those has filled it.
class PrimitiveCache {
 public:
  Primitive Get(const OneDnnProduct& p) {
    const Key key = {p.rows,
                     p.cols,
                     p.depth,
                     p.x_stride,
                     p.y_stride,
                     (p.dtype == DType::kBF16 ? 1 : 0) + (p.y_dtype == DType::kBF16 ? 2 : 0) +
                         (p.bias != nullptr ? 4 : 0)};
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto it = primitives_.find(key); it != primitives_.end()) return it->second;
    constexpr size_t kMaxPrimitives = 4096;
    if (primitives_.size() >= kMaxPrimitives) primitives_.clear();
    return primitives_.emplace(key, CreatePrimitive(p)).first->second;
  }

 private:
  using Key = std::array<int64_t, 6>;
  std::mutex mutex_;
  std::map<Key, Primitive> primitives_;
};

void Run(const OneDnnProduct& p) {
  static PrimitiveCache cache;
  thread_local dnnl::stream stream = [] {
    omp_set_num_threads(1);  // of this thread: the pool's threads are the parallelism
    return dnnl::stream(Engine());
  }();
  thread_local std::vector<std::byte> scratchpad;
  Primitive primitive = cache.Get(p);
  scratchpad.resize(std::max(scratchpad.size(), primitive.scratchpad.get_size() + 64));
  auto* aligned = scratchpad.data();
  aligned += (64 - reinterpret_cast<uintptr_t>(aligned) % 64) % 64;
  // oneDNN takes inputs as non-const pointers and does not write them.
  std::unordered_map<int, memory> args = {
      {DNNL_ARG_SRC, memory(primitive.x, Engine(), const_cast<void*>(p.x))},
      {DNNL_ARG_WEIGHTS, memory(primitive.weights, Engine(), const_cast<void*>(p.panels))},
      {DNNL_ARG_DST, memory(primitive.y, Engine(), p.y)},
      {DNNL_ARG_SCRATCHPAD, memory(primitive.scratchpad, Engine(), aligned)},
  };
  if (p.bias != nullptr) {
    args.emplace(DNNL_ARG_BIAS, memory(primitive.bias, Engine(), const_cast<float*>(p.bias)));
  }
  primitive.matmul.execute(stream, args);
  stream.wait();
}

}  // namespace

void RunOneDnnProduct(const OneDnnProduct& product) {
  try {
    Run(product);
  } catch (const dnnl::error& error) {
    TANDEM_CHECK(false, "oneDNN: {} (rows {}, cols {}, depth {}, {})", error.what(), product.rows,
                 product.cols, product.depth, DTypeName(product.dtype));
  }
}

}  // namespace tandem
