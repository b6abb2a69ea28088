#include <cstring>

#include "base/check.h"
#include "device/host/host_device.h"
#include "ops/host/host_ops.h"
#include "ops/host/row_tasks.h"

namespace tandem {

void HostOps::GatherRows(Stream& stream, const GatherRowsArgs& args) {
  TANDEM_CHECK(args.in.cols == args.out.cols && args.in.dtype == args.out.dtype,
               "gather_rows: in [{}, {}] {}, out [{}, {}] {}", args.in.rows, args.in.cols,
               DTypeName(args.in.dtype), args.out.rows, args.out.cols, DTypeName(args.out.dtype));
  AsHostStream(stream).Enqueue([args](ComputePool& pool) {
    const size_t row_bytes = static_cast<size_t>(args.out.cols) * DTypeSize(args.out.dtype);
    ForEachRow(pool, args.out.rows, args.out.cols, [&](int64_t row) {
      const int32_t index = args.indices[row];
      TANDEM_CHECK(index >= 0 && index < args.in.rows, "gather_rows: index {} of {} rows", index,
                   args.in.rows);
      std::memcpy(args.out.RowData(row), args.in.RowData(index), row_bytes);
    });
  });
}

}  // namespace tandem
