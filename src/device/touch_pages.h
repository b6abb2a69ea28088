// Having the system provide memory now, by several threads, instead of page by page at its first use.
#pragma once

#include <cstddef>

namespace tandem {

// [data, data + size_bytes): mapped, writable, placed as it is to lie. Its contents stay. Blocks; returns
// once all pages are there, or the system would not give them (a later use is answered then as it would have
// been).
void TouchPages(void* data, size_t size_bytes);

}  // namespace tandem
